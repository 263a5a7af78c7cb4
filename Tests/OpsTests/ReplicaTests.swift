import EventLoop
import Jobs
import OpsCore
import Redis
import RedisQueue
import TestSupport
import Testing

@testable import CLI

/// The tool where RATCHET_REDIS_URL names a replica: what only reads works, what writes says what to name instead.
@Suite struct ReplicaTests {
    private func withReplica(_ body: (TestInstallation, _ there: [String: String]) async throws -> Void) async throws {
        let primary = try await TestRedis.start(
            TestRedis.Options(tcp: true, arguments: ["--repl-diskless-sync-delay", "0"]))
        let replica = try await TestRedis.start(
            TestRedis.Options(arguments: ["--replicaof", "127.0.0.1", "\(primary.port)"]))
        let installation = try await TestInstallation.make(redis: primary)
        try await installation.seedQueue()
        do {
            _ = await installation.run("queues", "pause", "--lane", "write", "--reason", "r")
            _ = await installation.run(["queues", "drain", "--org", "demo", "--reason", "r"], time: SystemTime())
            // Orders that have run out, which whoever may write forgets.
            for (name, order) in [("pause:kind:echo", #"{"until":1}"#), ("drain:kind:echo", #"{"until":1}"#)] {
                try await primary.command([
                    "HSET", .text("\(installation.prefix)q:{0}:meta"), .text(name), .text(order),
                ])
            }
            try await primary.command([
                "XADD", .text("\(installation.prefix)q:{0}:write"), "1000-1", "h", "identify|1|1000000|0|demo|5|0|||",
                "p", "{}",
            ])
            try await primary.command(["SET", .text("\(installation.prefix)q:{0}:clock"), "2000000"])
            try await primary.command(["ZADD", .text("\(installation.prefix)q:{0}:write:due"), "9000000000000", "7"])
            var inStep = false
            while !inStep {
                inStep =
                    try await primary.pipeline([["SET", "any", "1"], ["WAIT", 1, 100]])[1].get().int64 == 1
            }
            try await body(installation, ["RATCHET_REDIS_URL": replica.url])
        } catch {
            Issue.record(error)
        }
        await replica.remove()
        await primary.remove()
    }

    @Test func whatOnlyReadsAnswersAsOnThePrimary() async throws {
        try await withReplica { installation, there in
            let lines = [
                ["queues", "orders"], ["jobs", "show", "0-1000000"], ["jobs", "show", "0-1999999"],
                ["queues", "purge", "--lane", "write"], ["dead", "list"],
            ]
            for line in lines {
                let output = await installation.run(line, environment: there, time: SystemTime())
                #expect(output == (await installation.run(line)), "\(line)")
                #expect(output.exitCode == 0, "\(line): \(output)")
            }
            let queues = await installation.run(["queues", "--json"], environment: there, time: SystemTime())
            let write = try #require(try parsed(queues.text).elements.last)
            #expect(write["waiting"] == .json("1") && write["paused"] == .bool(true), "\(queues)")
            let orders = await installation.run(["queues", "orders", "--json"], environment: there, time: SystemTime())
            #expect(try parsed(orders.text).elements.map { $0["target"]?.string } == ["write", "demo"])
        }
    }

    @Test func whatWritesSaysThatThePrimaryMustBeNamed() async throws {
        try await withReplica { installation, there in
            let before = await installation.run("audit", "list")
            for line in [
                ["queues", "pause", "--lane", "verify", "--reason", "r"], ["queues", "resume", "--lane", "write"],
                ["queues", "resume", "--all"], ["queues", "resume", "--kind", "attribute"],
                ["queues", "promote", "--lane", "verify"], ["dead", "retry", "--all"],
                ["queues", "drain", "--lane", "verify", "--reason", "r"],
                ["queues", "promote", "--lane", "write"],
                ["queues", "purge", "--lane", "write", "--reason", "r", "--yes"],
            ] {
                let output = await installation.run(line, environment: there, time: SystemTime())
                #expect(output.exitCode == 2, "\(line): \(output)")
                #expect(
                    output.errors.contains("redis is a read-only replica: RATCHET_REDIS_URL must name"), "\(output)")
            }
            #expect(try await installation.json("queues", "orders").elements.count == 2)
            // A purge tells of its beginning before it can know.
            let after = await installation.run("audit", "list")
            #expect(after.text.split(separator: "\n").count == before.text.split(separator: "\n").count + 2)
            let doctor = await installation.run(["doctor", "--json"], environment: there, time: SystemTime())
            let role = try parsed(doctor.text)["checks"]?.elements.first { $0["name"] == .string("redis.role") }
            #expect(doctor.exitCode == 1, "\(doctor)")
            #expect(role?["status"] == .string("fail"))
            #expect(role?["remedy"]?.string?.contains("RATCHET_REDIS_URL") == true)
        }
    }
}
