package import EventLoop
internal import Synchronization

/// Postgres' clock, told between two readings by this machine's monotonic one: all sweepers agree on when a lease ends,
/// whatever their own clocks say.
package final class DatabaseClock: SweepClock {
    private let loop: EventLoop
    /// What this clock is ahead of the monotonic one, microseconds.
    private let offset: Atomic<Int64>
    private let isCorrected = Atomic<Bool>(false)

    /// A reading is wrong by as long as it took at the most. A slower one is worth less than the last good one: leases
    /// leave two seconds for such errors.
    private static let slowReadingMicroseconds: Int64 = 500_000

    /// - Parameter loop: its clocks tell the time until the first reading.
    package init(loop: EventLoop) {
        self.loop = loop
        offset = Atomic(loop.time.wallMicroseconds - loop.time.monotonicNanoseconds / 1000)
    }

    package var microseconds: Int64 {
        loop.time.monotonicNanoseconds / 1000 + offset.load(ordering: .relaxed)
    }

    package func correct(databaseTime: Int64, took: Int64) {
        guard took <= Self.slowReadingMicroseconds || !isCorrected.load(ordering: .relaxed) else { return }
        isCorrected.store(true, ordering: .relaxed)
        offset.store(databaseTime + took / 2 - loop.time.monotonicNanoseconds / 1000, ordering: .relaxed)
    }

    package func sleep(until end: Int64, idle: Bool) async {
        await loop.sleep(milliseconds: max(1, (end - microseconds + 999) / 1000))
    }
}
