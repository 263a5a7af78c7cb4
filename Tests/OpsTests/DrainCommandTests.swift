import EventLoop
import Jobs
import OpsCore
import Redis
import RedisQueue
import Store
import Synchronization
import TestSupport
import Testing

@testable import CLI

/// Drain and purge from the command line, against a real Postgres and Redis.
@Suite(.timeLimit(.minutes(2))) struct DrainCommandTests {
    /// The queue of an installation, and a worker on it that does nothing but say that jobs are done.
    private final class Queue: Sendable {
        let loop = EventLoop(name: "drain-test")
        let client: RedisClient
        let keys: QueueKeys
        let sink: RedisJobSink
        let source: RedisJobSource

        init(_ installation: TestInstallation) async throws {
            let keys = QueueKeys(prefix: installation.prefix, partitions: 2)
            let (loop, address) = (loop, installation.redis.address)
            self.keys = keys
            (client, sink, source) = try await loop.run {
                let client = RedisClient(loop: loop, address: address, configuration: RedisClientConfiguration())
                let waiter = RedisClient(loop: loop, address: address, configuration: RedisClientConfiguration())
                for each in [client, waiter] { _ = await each.waitUntilConnected(milliseconds: 5_000) }
                try await QueueSeed(client: client, keys: keys).seed()
                return (
                    client, RedisJobSink(loop: loop, client: client, keys: keys),
                    RedisJobSource(
                        loop: loop, client: client, waiter: waiter, keys: keys, stage: .write, consumer: "w1")
                )
            }
        }

        func accept(_ subject: String, organization: String = "demo") async throws -> AcceptResult {
            try await loop.run { [sink] in
                await sink.accept(
                    NewJob(
                        kind: .identify, lane: .write, organization: organization, subject: subject,
                        payload: Array("{}".utf8)))
            }
        }

        func fetch() async throws -> [FetchedJob] { try await loop.run { [source] in await source.fetch(atMost: 100) } }

        func finish(_ jobs: [FetchedJob]) async throws {
            try await loop.run { [source] in await source.settle(jobs.map { Settlement($0, .done) }) }
        }
    }

    private final class Watched: Sendable {
        let lines = Mutex<[String]>([])
        let interrupted = Atomic<Bool>(false)
        var text: String { lines.withLock { $0.joined(separator: "\n") } }

        func session(_ installation: TestInstallation, isWatched: Bool = true) -> Session {
            Session(
                environment: installation.environment, time: SystemTime(), isWatched: isWatched,
                progress: { line in self.lines.withLock { $0.append(line) } },
                isInterrupted: { self.interrupted.load(ordering: .relaxed) })
        }
    }

    private func audit(_ installation: TestInstallation, _ organization: String? = nil) async throws -> [AuditEntry] {
        try await installation.store { try await AuditLog.list(organization: organization, $0) }
    }

    @Test func aDrainClosesIntakeAndEndsWhenTheLaneIsEmpty() async throws {
        let installation = try await TestInstallation.make()
        let queue = try await Queue(installation)
        for index in 0..<30 { _ = try await queue.accept("user_\(index)") }
        let watched = Watched()
        async let drained = CommandLineTool(session: watched.session(installation)).run([
            "queues", "drain", "--lane", "write", "--reason", "move", "--for", "1h",
        ])
        while try await queue.accept("probe") != .draining {}
        var held = try await queue.fetch()
        // It sees them before they end.
        while !watched.text.contains(" of ") { try await queue.loop.run { await queue.loop.sleep(milliseconds: 20) } }
        while !held.isEmpty {
            try await queue.finish(held)
            held = try await queue.fetch()
        }
        let output = await drained
        #expect(output.exitCode == 0, "\(output)")
        #expect(output.text.hasPrefix("lane write is drained: "), "\(output)")
        #expect(output.text.contains("intake stays closed until 20"), "\(output)")
        #expect(output.text.hasSuffix("ratchet queues resume --lane write --only drain\n"), "\(output)")
        #expect(watched.text.contains("drain of lane write: ["), "\(watched.text)")
        #expect(try await queue.accept("after") == .draining)
        let order = try #require(try await installation.json("queues", "orders").elements.first)
        #expect(order["action"]?.string == "drain" && order["target"]?.string == "write")
        #expect(
            try await installation.store { try await LaneOrders.list(nowMicroseconds: 0, $0) }.map(\.action) == [
                "drain"
            ])
        #expect(await installation.run("queues").text.contains("lane write is drained, its intake closed until "))
        #expect(
            await installation.run("queues", "resume", "--lane", "write").text
                == "lane write is open for intake again\n")
        #expect(try await queue.accept("after") != .draining)
        #expect(try await audit(installation).map(\.action) == ["queue.resume", "queue.drain"])
    }

    @Test func aDrainThatIsInterruptedStandsAndTellsHowToGoOn() async throws {
        let installation = try await TestInstallation.make()
        let queue = try await Queue(installation)
        _ = try await queue.accept("user_1")
        let watched = Watched()
        watched.interrupted.store(true, ordering: .relaxed)
        let output = await CommandLineTool(session: watched.session(installation)).run([
            "queues", "drain", "--org", "demo", "--reason", "it's",
        ])
        #expect(output.exitCode == 1)
        #expect(
            output.text == """
                organization demo is not drained yet, 1 jobs are left; intake stays closed until it is opened: ratchet \
                queues resume --org demo --only drain
                to watch again: ratchet queues drain --org demo --reason 'it'\\''s'

                """)
        #expect(try await queue.accept("user_2") == .draining)
        #expect(try await queue.accept("user_2", organization: "other") != .draining)
        let json = try parsed(
            await CommandLineTool(session: watched.session(installation)).run([
                "queues", "drain", "--org", "demo", "--reason", "r", "--json",
            ]).text)
        #expect(json["drained"] == .bool(false) && json["left"] == .json("1") && json["intake"]?.string == "closed")
    }

    @Test func aDrainOfNothingEndsAtOnceAndReopens() async throws {
        let installation = try await TestInstallation.make()
        let queue = try await Queue(installation)
        let watched = Watched()
        let output = await CommandLineTool(session: watched.session(installation)).run([
            "queues", "drain", "--all", "--reason", "r", "--reopen",
        ])
        #expect(
            output.exitCode == 0 && output.text.hasPrefix("the queue is drained: 0 jobs in "), "\(output)")
        #expect(try await queue.accept("user_1") != .draining)
        #expect(try await installation.json("queues", "orders").elements.isEmpty)
        watched.interrupted.store(true, ordering: .relaxed)
        let watching = await CommandLineTool(session: watched.session(installation)).run([
            "queues", "drain", "--kind", "identify", "--keep-intake",
        ])
        #expect(watching.exitCode == 1 && watching.text.contains("1 jobs are left; intake is open"), "\(watching)")
    }

    @Test func aDrainOfWhatIsPausedSaysSoAtOnce() async throws {
        let installation = try await TestInstallation.make()
        let queue = try await Queue(installation)
        _ = try await queue.accept("user_1")
        _ = await installation.run("queues", "pause", "--organization", "demo", "--reason", "flood")
        let watched = Watched()
        async let drained = CommandLineTool(session: watched.session(installation, isWatched: false)).run([
            "queues", "drain", "--lane", "write", "--reason", "r",
        ])
        while !watched.text.contains("no live worker") {
            try await queue.loop.run { await queue.loop.sleep(milliseconds: 20) }
        }
        watched.interrupted.store(true, ordering: .relaxed)
        #expect(await drained.exitCode == 1)
        #expect(watched.text.contains("nothing of lane write is worked off now; 1 jobs are left"), "\(watched.text)")
        #expect(
            watched.text.contains(
                "organization demo is paused (flood); to let workers at it: ratchet queues resume --org demo --only pause"
            ))
        #expect(watched.text.contains("no live worker of lane write is known: start ratchet-writer"))
    }

    @Test func aLiftedDrainIsSaidToBeLifted() async throws {
        let installation = try await TestInstallation.make()
        let queue = try await Queue(installation)
        _ = try await queue.accept("user_1")
        let watched = Watched()
        async let drained = CommandLineTool(session: watched.session(installation)).run([
            "queues", "drain", "--lane", "write", "--reason", "r",
        ])
        while try await queue.accept("probe") != .draining {}
        while !watched.text.contains(" of ") { try await queue.loop.run { await queue.loop.sleep(milliseconds: 20) } }
        _ = await installation.run("queues", "resume", "--all")
        let output = await drained
        #expect(output.exitCode == 1 && output.text.contains("its order was lifted or ran out"), "\(output)")
    }

    @Test func aPurgeCountsFirstAndWantsYesAReasonAndAPause() async throws {
        let installation = try await TestInstallation.make()
        let queue = try await Queue(installation)
        for index in 0..<7 { _ = try await queue.accept("user_\(index)") }
        _ = try await queue.accept("user", organization: "other")
        let dry = await installation.run("queues", "purge", "--lane", "write", "--organization", "demo")
        #expect(dry.exitCode == 0)
        #expect(
            dry.text == """
                7 jobs would be thrown away (7 waiting, 0 delayed, 0 parked); nothing was done. To do it:
                  ratchet queues pause --lane write --reason R
                  ratchet queues purge --lane write --org demo --reason R --yes

                """)
        let purge = ["queues", "purge", "--lane", "write", "--organization", "demo", "--yes"]
        #expect(await installation.run(purge).exitCode == 2)
        let unpaused = await installation.run(purge + ["--reason", "flood"])
        #expect(unpaused.exitCode == 2 && unpaused.errors.contains("ratchet queues pause --lane write"), "\(unpaused)")
        #expect(try await audit(installation, "demo").isEmpty)
        _ = await installation.run("queues", "pause", "--lane", "write", "--reason", "flood")
        let done = await installation.run(purge + ["--reason", "flood"])
        #expect(done == .init(text: "7 jobs are gone (7 waiting, 0 delayed, 0 parked)\n"), "\(done)")
        let rows = try await audit(installation, "demo")
        #expect(rows.map(\.action) == ["queue.purge", "queue.purge.begin"])
        #expect(rows.first?.subject == "lane:write organization:demo")
        #expect(rows.first?.detail.contains("\"purged\": 7") == true, "\(rows)")
        let json = try parsed(await installation.run(purge + ["--reason", "flood", "--json"]).text)
        #expect(json["purged"] == .json("0") && json["complete"] == .bool(true))
        let away = await installation.run(
            purge + ["--reason", "r"], environment: ["RATCHET_PG": "host=/tmp/ratchet-no-such-folder user=postgres"])
        #expect(away.exitCode == 3)
    }

    @Test func drainsAndPurgesThatCannotBeAreRefused() async throws {
        let installation = try await TestInstallation.make()
        let lines: [[String]] = [
            ["queues", "drain", "--reason", "r"], ["queues", "drain", "--lane", "write"],
            ["queues", "drain", "--lane", "wirte", "--reason", "r"],
            ["queues", "drain", "--all", "--lane", "write", "--reason", "r"],
            ["queues", "drain", "--all", "--keep-intake", "--reason", "r"],
            ["queues", "drain", "--lane", "write", "--reason", "r", "--for", "5"],
            ["queues", "purge", "--lane", "wirte"], ["queues", "purge", "--yes", "--reason", "r"],
            ["queues", "resume", "--lane", "write", "--only", "purge"],
        ]
        for line in lines {
            let output = await installation.run(line)
            #expect(output.exitCode == 2, "\(line): \(output)")
        }
        // A Redis that was wiped counts nothing: that is no empty queue.
        let watched = Watched()
        watched.interrupted.store(true, ordering: .relaxed)
        let output = await CommandLineTool(session: watched.session(installation)).run([
            "queues", "drain", "--lane", "write", "--reason", "r",
        ])
        #expect(output.exitCode == 1 && watched.text.contains("not seeded"), "\(output) \(watched.text)")
    }

    @Test func aPromoteBringsDelayedJobsBackAtOnce() async throws {
        let installation = try await TestInstallation.make()
        let queue = try await Queue(installation)
        for index in 0..<10 { _ = try await queue.accept("user_\(index)") }
        var jobs: [FetchedJob] = []
        while jobs.count < 10 { jobs += try await queue.fetch() }
        let held = jobs
        try await queue.loop.run {
            await queue.source.settle(held.map { Settlement($0, .retry(afterMilliseconds: 3_600_000, attempts: 2)) })
        }
        #expect(await installation.run("queues", "promote").exitCode == 2)
        let promoted = await installation.run("queues", "promote", "--lane", "write")
        #expect(promoted == .init(text: "10 of 10 delayed jobs are back in lane write\n"))
        var back: [FetchedJob] = []
        while back.count < 10 { back += try await queue.fetch() }
        #expect(back.allSatisfy { $0.header.attempts == 2 })
        #expect(try await audit(installation).map(\.action) == ["queue.promote"])
    }

    @Test func deadLettersAreCountedInPostgresWhenItAnswers() async throws {
        let installation = try await TestInstallation.make()
        _ = try await Queue(installation)
        _ = try await installation.store {
            try await DeadLetters.insert(
                (1...3).map {
                    DeadLetterRecord(
                        partition: 0, stamp: Int64($0), organization: "demo", lane: "write", kind: "identify",
                        header: [], payload: [], reason: "r", error: "e", diedAt: 1)
                }, $0)
        }
        let lanes = try await installation.json("queues").elements
        #expect(lanes.map { $0["dead"] } == [.json("0"), .json("0"), .json("0"), .json("3")])
        #expect(lanes.allSatisfy { $0["deadIn"]?.string == "postgres" })
        let away = await installation.run(
            ["queues"], environment: ["RATCHET_PG": "host=/tmp/ratchet-no-such-folder user=postgres dbname=postgres"])
        #expect(away.exitCode == 0 && away.text.contains("dead: only what lies in Redis"), "\(away)")
    }
}
