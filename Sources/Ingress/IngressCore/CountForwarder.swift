package import EventLoop
package import RedisQueue

/// Counts by name, and hands the counts to the queue's Redis once a second, from where a writer fetches them: writes
/// dropped because their bundle resolves to no organization or to several ('where did my calls go?' is the first
/// question of every integration), and the steps of enrolments.
///
/// `@unchecked Sendable`: every property is touched on the loop's thread alone.
package final class CountForwarder: @unchecked Sendable {
    /// Counted since the start.
    package private(set) var total: Int64 = 0
    private var counts: [String: Int64] = [:]
    private let loop: EventLoop
    private let store: PendingCounts

    private static let flushMilliseconds: Int64 = 1000
    /// Names kept between two flushes; beyond, they are counted together. Strangers choose some of them.
    private static let mostNames = 1000

    package init(loop: EventLoop, store: PendingCounts) {
        self.loop = loop
        self.store = store
    }

    package func count(_ name: String) {
        loop.preconditionInLoop()
        total += 1
        add(name, 1)
    }

    private func add(_ name: String, _ count: Int64) {
        let isKept = counts[name] != nil || counts.count < Self.mostNames
        counts[isKept ? name : PendingCounts.otherNames, default: 0] += count
    }

    /// Hands counts over each second until the task is cancelled, and once more at the end.
    package func run() async {
        while !Task.isCancelled {
            await flush()
            await loop.sleep(milliseconds: Self.flushMilliseconds)
        }
        await flush()
    }

    /// Hands the counts over now. Counts that another call has on its way are not waited for.
    package func flush() async {
        guard !counts.isEmpty else { return }
        let batch = counts
        counts.removeAll(keepingCapacity: true)
        do {
            try await store.add(batch)
        } catch {
            // Kept for the next second; a count that was added although its answer was lost is counted twice, which
            // a hint may be.
            for (name, count) in batch { add(name, count) }
        }
    }
}
