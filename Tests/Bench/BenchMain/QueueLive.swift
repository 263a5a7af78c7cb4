import EventLoop
import Foundation
import Jobs
import RedisQueue

/// How long `--live` live jobs take from their acceptance to a worker's hands while it works off `--jobs` bulk jobs: the
/// queue's own part, since the worker does nothing with them.
struct QueueLive: Subcommand {
    static let name = "queue-live"

    static func run(_ options: Options) async throws -> [String: Double] {
        let rig = try await QueueRig.make(options)
        _ = try await rig.accept(try options.number("jobs", default: 200_000), batch: 64)
        let live = try options.number("live", default: 200)
        let worker = try await rig.worker("bench")
        let times = try await rig.loop.run { await latencies(rig, worker, live) }.sorted()
        return [
            "medianMs": Double(times[live / 2]) / 1e6, "p99Ms": Double(times[live * 99 / 100]) / 1e6,
            "slowestMs": Double(times[live - 1]) / 1e6,
        ]
    }

    /// Nanoseconds, one job after the other. Runs on the loop.
    private static func latencies(_ rig: QueueRig, _ worker: RedisJobSource, _ live: Int) async -> [Int64] {
        let loop = rig.loop
        let arrived = Arrivals()
        let working = loop.spawn {
            while !Task.isCancelled {
                let jobs = await worker.fetch(atMost: 1024)
                for job in jobs where job.lane == .writeLive { arrived.times.append(loop.time.monotonicNanoseconds) }
                await worker.settle(jobs.map { Settlement($0, .done) })
            }
        }
        var latencies: [Int64] = []
        for number in 0..<live {
            let sent = loop.time.monotonicNanoseconds
            _ = await rig.sink.accept(
                NewJob(kind: .echo, lane: .writeLive, organization: "demo", subject: "live_\(number)", payload: [1]))
            while arrived.times.count <= number { await loop.sleep(milliseconds: 1) }
            latencies.append(arrived.times[number] - sent)
        }
        working.cancel()
        return latencies
    }

    /// `@unchecked Sendable`: only touched on the loop.
    private final class Arrivals: @unchecked Sendable {
        var times: [Int64] = []
    }
}
