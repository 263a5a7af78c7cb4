import EventLoop
import OpsCore
import Redis
import RedisQueue
import Store
import Synchronization
import TestSupport
import Testing

@testable import CLI

/// Pausing from the command line, against a real Postgres and Redis.
@Suite struct OrderTests {
    private func audit(_ installation: TestInstallation, _ organization: String? = nil) async throws -> [AuditEntry] {
        try await installation.store { try await AuditLog.list(organization: organization, $0) }
    }

    private func copied(_ installation: TestInstallation) async throws -> [String] {
        try await installation.store {
            try await LaneOrders.list(nowMicroseconds: 0, $0).map { "\($0.scope):\($0.target)" }
        }
    }

    /// A short look of one operator must not end another's pause unseen.
    @Test func anOrderThatReplacesAnotherSaysWhoseAndDoctorTellsOfAll() async throws {
        let installation = try await TestInstallation.make()
        try await installation.seedQueue()
        let first = await installation.run("queues", "pause", "--kind", "identify", "--reason", "restore: leave it")
        #expect(first.errors.isEmpty, "\(first)")
        let second = await installation.run(
            "queues", "pause", "--kind", "identify", "--reason", "a look", "--for", "1h")
        #expect(second.exitCode == 0)
        #expect(second.errors.contains("this replaces the pause of"), "\(second)")
        #expect(second.errors.contains("until it is lifted: restore: leave it"), "\(second)")
        let doctor = await installation.run(["doctor"], time: SystemTime()).text
        #expect(doctor.contains("kind identify is paused by"), "\(doctor)")
        #expect(doctor.contains("ratchet queues resume --kind identify"))
    }

    @Test func whatIsPausedIsListedCopiedAuditedAndLifted() async throws {
        let installation = try await TestInstallation.make()
        _ = await installation.run("orgs", "create", "demo")
        #expect(await installation.run("queues", "orders").text == "nothing is paused or drained\n")
        let lane = await installation.run("queues", "pause", "--lane", "write", "--reason", "vacuum")
        #expect(lane == .init(text: "lane write is paused\n"))
        let organization = await installation.run(
            "queues", "pause", "--organization", "demo", "--reason", "flood\u{1b}[2J", "--for", "2h")
        #expect(organization.text.hasPrefix("organization demo is paused until 20"), "\(organization)")
        #expect(organization.errors.isEmpty, "\(organization)")

        let orders = try await installation.json("queues", "orders").elements
        #expect(orders.map { $0["scope"]?.string } == ["lane", "organization"])
        #expect(orders.map { $0["target"]?.string } == ["write", "demo"])
        #expect(orders.first?["owner"]?.string == Operator.loginName(environment: [:]))
        #expect(orders.first?["until"] == .null && orders.last?["until"]?.string != nil)
        #expect(orders.first?["reason"]?.string == "vacuum" && orders.first?["at"]?.string != nil)
        let shown = await installation.run("queues").text.split(separator: "\n")
        try #require(shown.count == 6)
        #expect(shown[4].hasSuffix("yes") && shown[3].hasSuffix("no"))
        #expect(shown[5].hasPrefix("organization demo is paused until ") && shown[5].hasSuffix(": flood\\u{1b}[2J"))
        #expect(try await copied(installation) == ["lane:write", "organization:demo"])

        #expect(await installation.run("queues", "resume", "--lane", "write").text == "lane write goes on\n")
        #expect(
            await installation.run("queues", "resume", "--lane", "write").text
                == "lane write was not paused; nothing changed\n")
        #expect(await installation.run("queues", "resume", "--all").text == "organization demo goes on\n")
        #expect(await installation.run("queues", "resume", "--all").text == "nothing was paused; nothing changed\n")
        #expect(try await copied(installation).isEmpty)
        #expect(try await installation.json("queues", "orders").elements.isEmpty)
        #expect(try await audit(installation).map(\.action) == ["queue.resume", "queue.pause"])
        let ofDemo = try await audit(installation, "demo").map(\.action)
        #expect(ofDemo == ["queue.resume", "queue.pause", "organization.create"])
    }

    @Test func aPauseNeedsNoPostgresAndIsCopiedLater() async throws {
        let installation = try await TestInstallation.make()
        let away = ["RATCHET_PG": "host=/tmp/ratchet-no-such-folder user=postgres dbname=postgres"]
        let paused = await installation.run(
            ["queues", "pause", "--lane", "write", "--reason", "postgres is down"], environment: away)
        #expect(paused.exitCode == 0 && paused.text == "lane write is paused\n")
        #expect(paused.errors.contains("a writer copies it there"))
        #expect(try await installation.json("queues", "orders").elements.count == 1)
        let lifted = await installation.run(["queues", "resume", "--lane", "write"], environment: away)
        #expect(lifted.exitCode == 0 && lifted.text == "lane write goes on\n")
        _ = await installation.run(["queues", "pause", "--kind", "identify", "--reason", "r"], environment: away)
        #expect(try await audit(installation).isEmpty)
        // With Postgres back the next order takes the earlier ones along, in their order.
        #expect(await installation.run("queues", "pause", "--lane", "verify", "--reason", "r").errors.isEmpty)
        #expect(try await copied(installation) == ["kind:identify", "lane:verify"])
        #expect(
            try await audit(installation).reversed().map { "\($0.action) \($0.subject)" } == [
                "queue.pause lane:write", "queue.resume lane:write", "queue.pause kind:identify",
                "queue.pause lane:verify",
            ])
    }

    @Test func aResumeLiftsAlsoWhatOnlyPostgresKnows() async throws {
        let installation = try await TestInstallation.make()
        try await installation.store {
            try await LaneOrders.put(
                LaneOrderRecord(
                    scope: "lane", target: "write", action: "pause", owner: "o", reason: "r", until: nil, createdAt: 1),
                $0)
        }
        #expect(await installation.run("queues", "resume", "--lane", "write") == .init(text: "lane write goes on\n"))
        #expect(try await copied(installation).isEmpty)
        #expect(try await audit(installation).map(\.action) == ["queue.resume"])
    }

    /// Whatever lies in the two places where orders stand.
    private func standing(_ installation: TestInstallation) async throws -> [RedisValue] {
        var found: [RedisValue] = []
        for partition in 0..<2 {
            found.append(
                try await installation.redis.command(["HGETALL", .text("\(installation.prefix)q:{\(partition)}:meta")]))
        }
        let changes = try await installation.redis.command(["XLEN", .text("\(installation.prefix)q:{0}:changes")])
        return found + [changes]
    }

    @Test func liftingWhatDoesNotStandChangesNothingAndSaysSo() async throws {
        let installation = try await TestInstallation.make()
        try await installation.seedQueue()
        _ = await installation.run("queues", "pause", "--kind", "identify", "--reason", "r")
        let before = try await standing(installation)
        let rows = try await audit(installation)
        for (line, said) in [
            (["--lane", "write"], "lane write was not paused"),
            (["--kind", "attribute"], "kind attribute was not paused"),
            (["--kind", "identify", "--only", "drain"], "kind identify was not drained"),
            (["--all", "--only", "drain"], "nothing was drained"),
        ] {
            let output = await installation.run(["queues", "resume"] + line)
            #expect(output == .init(text: "\(said); nothing changed\n"), "\(line)")
            let json = await installation.run(["queues", "resume", "--json"] + line)
            #expect(json == .init(text: "[]\n"), "\(line)")
        }
        #expect(try await standing(installation) == before)
        #expect(try await audit(installation) == rows)
    }

    /// A Redis that was wiped has forgotten both; one was given again since.
    @Test func liftingAllLiftsWhatPostgresAloneHas() async throws {
        let installation = try await TestInstallation.make()
        for (target, action) in [("write", "pause"), ("verify", "drain")] {
            try await installation.store {
                try await LaneOrders.put(
                    LaneOrderRecord(
                        scope: "lane", target: target, action: action, owner: "o", reason: "r", until: nil, createdAt: 1
                    ),
                    $0)
            }
        }
        _ = await installation.run("queues", "pause", "--kind", "identify", "--reason", "r")
        let drains = await installation.run("queues", "resume", "--all", "--only", "drain")
        #expect(drains == .init(text: "lane verify is open for intake again\n"))
        #expect(try await copied(installation) == ["kind:identify", "lane:write"])
        let away = ["RATCHET_PG": "host=/tmp/ratchet-no-such-folder user=postgres dbname=postgres"]
        let half = await installation.run(["queues", "resume", "--all"], environment: away)
        #expect(half.exitCode == 0 && half.errors.contains("lift all again then"), "\(half)")
        let all = await installation.run("queues", "resume", "--all")
        #expect(all.exitCode == 0 && all.text.contains("lane write goes on"), "\(all)")
        #expect(try await copied(installation).isEmpty)
    }

    /// Without Postgres nobody knows whether it has the order. A writer finds out, and what was none leaves no row.
    @Test func liftingWhatDoesNotStandInRedisIsLeftToAWriterWhilePostgresIsAway() async throws {
        let installation = try await TestInstallation.make()
        let away = ["RATCHET_PG": "host=/tmp/ratchet-no-such-folder user=postgres dbname=postgres"]
        try await installation.store {
            try await LaneOrders.put(
                LaneOrderRecord(
                    scope: "lane", target: "write", action: "pause", owner: "o", reason: "r", until: nil, createdAt: 1),
                $0)
        }
        for lane in ["write", "verify"] {
            let output = await installation.run(["queues", "resume", "--lane", lane], environment: away)
            #expect(output.exitCode == 0 && output.errors.contains("a writer lifts there later"), "\(output)")
        }
        // Copies what waits, as a writer does. Given after the lifting, it stands.
        _ = await installation.run("queues", "pause", "--lane", "verify", "--reason", "r")
        #expect(try await copied(installation) == ["lane:verify"])
        #expect(
            try await audit(installation).reversed().map { "\($0.action) \($0.subject)" } == [
                "queue.resume lane:write", "queue.pause lane:verify",
            ])
    }

    @Test func ordersThatCannotBeAreRefused() async throws {
        let installation = try await TestInstallation.make()
        let pause = ["queues", "pause"]
        let lines: [[String]] = [
            pause + ["--lane", "write"], pause + ["--reason", "r"], pause + ["--lane", "wirte", "--reason", "r"],
            pause + ["--lane", "write", "--kind", "identify", "--reason", "r"],
            pause + ["--kind", "a|b", "--reason", "r"], pause + ["--organization", "No", "--reason", "r"],
            pause + ["--lane", "write", "--reason", ""], pause + ["--lane", "write", "--reason", "r", "--for", "5"],
            pause + ["--lane", "write", "--reason", "r", "--for", "0s"],
            pause + ["--lane", "write", "--reason", "r", "--for", "9223372036854775807d"],
            pause + ["--lane", "write", "--reason", "r", "--for", "367d"], ["queues", "resume"],
            ["queues", "resume", "--all", "--lane", "write"], ["queues", "resume", "--all=yes"],
            ["queues", "--watch", "--json"], ["queues", "purge"],
        ]
        for line in lines {
            let output = await installation.run(line)
            #expect(output.exitCode == 2, "\(line): \(output)")
        }
        #expect(try await installation.json("queues", "orders").elements.isEmpty)
        let unknown = await installation.run("queues", "pause", "--kind", "identfy", "--reason", "r")
        #expect(unknown.exitCode == 0 && unknown.errors.contains("knows no jobs of kind 'identfy'"))
        let nobody = await installation.run("queues", "pause", "--organization", "nobody", "--reason", "r")
        #expect(nobody.exitCode == 0 && nobody.errors.contains("no organization 'nobody'"))
    }

    @Test func aWatchShowsTheQueuesUntilNobodyReads() async throws {
        let installation = try await TestInstallation.make()
        let shown = Mutex<[String]>([])
        let session = Session(
            environment: installation.environment, time: SystemTime(),
            show: { text in
                shown.withLock { texts in
                    texts.append(text)
                    return texts.count < 2
                }
            })
        let output = await CommandLineTool(session: session).run(["queues", "--watch"])
        #expect(output == .init(text: ""))
        let texts = shown.withLock { $0 }
        #expect(texts.count == 2 && texts.allSatisfy { $0.contains("write.live") })
    }
}

extension TestInstallation {
    /// As a writer does at its start.
    func seedQueue() async throws {
        let loop = EventLoop(name: "ops-seed")
        defer { loop.stop() }
        let keys = QueueKeys(prefix: prefix, partitions: 2)
        let address = redis.address
        try await loop.run {
            let client = RedisClient(loop: loop, address: address, configuration: RedisClientConfiguration())
            _ = await client.waitUntilConnected(milliseconds: 5000)
            try await QueueSeed(client: client, keys: keys).seed()
            await client.close()
        }
    }
}
