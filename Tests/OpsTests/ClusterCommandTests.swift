import EventLoop
import Foundation
import Jobs
import Redis
import RedisQueue
import Service
import TestSupport
import Testing
import Wire

@testable import CLI
@testable import OpsCore

/// The tool on a Redis of several servers.
@Suite(.timeLimit(.minutes(2))) struct ClusterCommandTests {
    private static let partitions = 16

    private struct Filled: Sendable {
        let pending: Int
        let dead: Int
        /// One of the dead.
        let job: String
    }

    private func installation(_ url: String, _ prefix: String) async throws -> TestInstallation {
        try await TestInstallation.make(changing: [
            "RATCHET_REDIS_URL": url, "RATCHET_KEY_PREFIX": prefix, "RATCHET_PARTITIONS": String(Self.partitions),
        ])
    }

    /// Seeds the queue, accepts jobs, and buries one in each partition that has any.
    private func fill(_ address: RedisAddress, _ prefix: String) async throws -> Filled {
        let keys = QueueKeys(prefix: prefix, partitions: Self.partitions)
        let loop = EventLoop(name: "ops-cluster")
        defer { loop.stop() }
        return try await loop.run {
            let client = RedisClient(loop: loop, address: address)
            let waiter = RedisClient(
                loop: loop, address: address, configuration: RedisClientConfiguration(connectionPerSlot: true))
            try #require(await client.waitUntilConnected(milliseconds: 20_000))
            _ = try await PublishedDirectory(client: client, keys: keys).publish(
                version: 0, body: AppDirectory.encode([]))
            try await QueueSeed(client: client, keys: keys).seed()
            let sink = RedisJobSink(loop: loop, client: client, keys: keys)
            for index in 0..<40 {
                let job = NewJob(
                    kind: .identify, lane: .write, organization: "demo", subject: "u\(index)",
                    payload: Array(#"{"appUserId":"u","bundleId":"com.example.app"}"#.utf8))
                guard case .accepted = await sink.accept(job) else { throw TestRedis.Failure(description: "refused") }
            }
            let source = RedisJobSource(
                loop: loop, client: client, waiter: waiter, keys: keys, stage: .write, consumer: "w")
            var buried: Set<Int> = []
            var jobs: [FetchedJob] = []
            while jobs.count < 40 { jobs += await source.fetch(atMost: 100) }
            for job in jobs where buried.insert(job.partition).inserted {
                await source.settle([Settlement(job, .dead(reason: "malformed", text: "x"))])
            }
            await source.release()
            await client.close()
            await waiter.close()
            return Filled(
                pending: 40 - buried.count, dead: buried.count, job: "\(jobs[0].partition)-\(jobs[0].header.stamp)")
        }
    }

    @Test func queuesDeadLettersAndOrdersSpanAllNodesOfACluster() async throws {
        let cluster = try await TestRedisCluster.shared()
        let prefix = cluster.keyPrefix()
        let filled = try await fill(cluster.address, prefix)
        let installation = try await installation(cluster.url, prefix)
        try await check(installation, filled)
        let text = await installation.run(["doctor", "--json"], time: SystemTime()).text
        let checks = try parsed(text)["checks"]?.elements ?? []
        for name in ["redis.version", "clock.redis"] {
            let found = checks.filter { $0["name"]?.string == name }
            #expect(found.count == 3, "one for each primary: \(text)")
        }
        // Each node must be fit for what is promised; here none is, and each is named with what to type there.
        let settings = checks.filter { $0["name"]?.string == "redis.settings" }
        for node in cluster.nodes.prefix(3) {
            let own = settings.filter { $0["message"]?.string?.contains("127.0.0.1:\(node.port)") == true }
            #expect(own.contains { $0["remedy"]?.string?.contains("redis-cli -h 127.0.0.1 -p \(node.port)") == true })
        }
        // One node alone is told apart from a whole queue.
        let alone = await installation.run(
            ["doctor", "--json"], environment: ["RATCHET_REDIS_URL": cluster.nodes[0].url], time: SystemTime())
        #expect(alone.text.contains("one node of a cluster"))
    }

    @Test func theToolFindsThePrimaryThroughSentinels() async throws {
        let sentinel = try await TestRedisSentinel.start()
        let prefix = sentinel.keyPrefix()
        let filled = try await fill(sentinel.address, prefix)
        try await check(try await installation(sentinel.url, prefix), filled)
        await sentinel.remove()
    }

    private func check(_ installation: TestInstallation, _ filled: Filled) async throws {
        _ = await installation.run("orgs", "create", "demo")
        func write() async throws -> Document? {
            try await installation.json("queues").elements.first { $0["lane"]?.string == "write" }
        }
        let lane = try await write()
        #expect(lane?["dead"] == .json(String(filled.dead)))
        #expect(lane?["waiting"] == .json("0") && lane?["pending"] == .json(String(filled.pending)))
        let job = await installation.run("jobs", "show", filled.job)
        #expect(job.exitCode == 0 && job.text.contains("write"), "\(job)")
        let paused = await installation.run("queues", "pause", "--lane", "write", "--reason", "test")
        #expect(paused.text == "lane write is paused\n", "\(paused)")
        #expect(try await write()?["paused"] == .bool(true))
        #expect(await installation.run("queues", "resume", "--lane", "write").text == "lane write goes on\n")
    }
}
