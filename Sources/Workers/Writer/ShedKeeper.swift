internal import EventLoop
internal import Jobs
internal import Redis
internal import RedisQueue
internal import Service

/// Keeps the queue's shed level in step with its load, and shows what it saw. Every writer does this; all of them see and
/// write the same.
struct ShedKeeper: Sendable {
    let loop: EventLoop
    let shedLevel: ShedLevel
    let log: Log
    let gauge: Gauge
    let gauges: LaneGauges

    /// Memory fills in minutes, but intake should open soon after it was freed.
    private static let lookMilliseconds: Int64 = 1000

    func runUntilCancelled() async {
        var last = NewJob.Shedding.never
        while !Task.isCancelled {
            do {
                let level = try await shedLevel.update(gauges.set)
                gauge.set(level.rawValue)
                if level != last {
                    log.warn("the shed level changed", ["from": last.rawValue, "to": level.rawValue])
                    last = level
                }
            } catch {
                gauges.forget()
                log.limited(.warn, "redis is away; the shed level stays as it was", ["text": error.message])
            }
            await loop.sleep(milliseconds: Self.lookMilliseconds)
        }
    }
}
