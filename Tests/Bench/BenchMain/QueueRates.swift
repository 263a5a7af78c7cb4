import EventLoop
import Foundation
import Jobs
import RedisQueue

/// Puts `--jobs` identify jobs of 400 bytes into the queue, `--batch` in a call. Redis' own figures are for the caller to
/// read before and after.
struct QueueAccept: Subcommand {
    static let name = "queue-accept"

    static func run(_ options: Options) async throws -> [String: Double] {
        let rig = try await QueueRig.make(options)
        let jobs = try options.number("jobs", default: 100_000)
        let seconds = try await rig.accept(jobs, batch: try options.number("batch", default: 16))
        return ["seconds": seconds, "calls": Double(try await rig.loop.run { rig.sink.calls })]
    }
}

/// Takes `--jobs` jobs out again, `--batch` at a time, each batch fetched and settled as a worker does that has nothing
/// else to do.
struct QueueSettle: Subcommand {
    static let name = "queue-settle"

    static func run(_ options: Options) async throws -> [String: Double] {
        let rig = try await QueueRig.make(options)
        let jobs = try options.number("jobs", default: 100_000)
        let batch = try options.number("batch", default: 16)
        let worker = try await rig.worker("bench")
        let seconds = try await rig.loop.run {
            let begin = ContinuousClock.now
            var settled = 0
            while settled < jobs {
                let taken = await worker.fetch(atMost: batch)
                await worker.settle(taken.map { Settlement($0, .done) })
                settled += taken.count
            }
            return begin.duration(to: .now) / .seconds(1)
        }
        return ["seconds": seconds]
    }
}
