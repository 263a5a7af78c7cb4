import EventLoop
import Jobs
import Redis
import RedisQueue
import Service
import TestSupport
import Testing

@testable import Writer

/// What an autoscaler sees of the queue. cases/queue.md 68.
@Suite(.timeLimit(.minutes(1))) struct LaneGaugeTests {
    @Test func oneJobOfALaneWithoutWorkersIsSeenAndNoAnswerIsNoEmptyQueue() async throws {
        let server = try await TestRedis.start()
        let loop = EventLoop(name: "gauges")
        let keys = QueueKeys(prefix: server.keyPrefix(), partitions: 2)
        let metrics = Metrics()
        let gauges = LaneGauges(metrics)
        func show(_ line: String) async throws {
            for _ in 0..<3_000 {
                if metrics.exposition().contains("\n\(line)\n") { return }
                try await Task.sleep(for: .milliseconds(5))
            }
            Issue.record("never shown: \(line)")
        }
        // Nobody has looked yet.
        try await show(#"ratchet_jobs_waiting{lane="write"} NaN"#)
        let address = server.address
        let (client, keeping) = try await loop.run {
            let client = RedisClient(loop: loop, address: address)
            _ = await client.waitUntilConnected(milliseconds: 20_000)
            try await QueueSeed(client: client, keys: keys).seed()
            _ = await RedisJobSink(loop: loop, client: client, keys: keys).accept(
                NewJob(kind: .identify, lane: .write, organization: "demo", subject: "u", payload: [1]))
            let keeper = ShedKeeper(
                loop: loop, shedLevel: ShedLevel(client: client, keys: keys),
                log: Log(process: "test", level: .error, time: loop.time, sink: MemoryLogSink()),
                gauge: metrics.gauge("ratchet_shed_level", "Level."), gauges: gauges)
            return (client, loop.spawn { await keeper.runUntilCancelled() })
        }
        try await show(#"ratchet_jobs_waiting{lane="write"} 1"#)
        try await show(#"ratchet_jobs_waiting{lane="verify"} 0"#)
        try await show(#"ratchet_jobs_pending{lane="write"} 0"#)
        await server.stop()
        for name in ["jobs_waiting", "jobs_pending", "jobs_due", "oldest_waiting_seconds"] {
            try await show("ratchet_\(name){lane=\"write\"} NaN")
        }
        keeping.cancel()
        await keeping.value
        await client.close()
        await server.remove()
    }
}
