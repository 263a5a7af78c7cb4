import EventLoop
import Foundation
import Jobs
import Postgres
import RedisQueue
import Service
import Store
import TestSupport
import Testing

/// A backup taken while everything runs, and put back while the queue holds newer jobs: the steps of
/// docs/operations.md, with the programs that an operator types.
@Suite struct BackupTests {
    /// Settled before the backup, under way while it is taken, and sent while nothing is written.
    private static let before = 0..<40
    private static let during = 40..<140
    private static let after = 140..<170
    private static let lateBundle = "com.late.app"

    @Test(.timeLimit(.minutes(3)))
    func aRestoredBackupLacksOnlyWhatWasSettledBetweenItAndThePause() async throws {
        let pki = TestPKI()
        let stranger = TestPKI()
        func people(_ range: Range<Int>) -> Workload {
            Workload(people: range.count, from: range.lowerBound, pki: pki, stranger: stranger)
        }
        let (early, middle, late) = (people(Self.before), people(Self.during), people(Self.after))
        let system = try await RunningSystem.start(extraRoots: pki.rootPEM)
        let fresh = "restored_\(system.schema)"
        do {
            try await Self.post(early, to: system)
            try await system.ratchet("queues", "pause", "--org", "other", "--reason", "stands in the backup")
            try await system.plantMalformedJobs(3)
            try await system.waitUntilDrained()
            try await system.eventually("three letters and an order are in Postgres") {
                let facts = try await Self.facts(system)
                return facts.letters == 3 && facts.orders == ["organization:other"]
            }

            // The backup, while calls are answered and written.
            let file = system.folder + "/backup.dump"
            let answers = Observations()
            async let posting: Void = {
                defer { answers.end() }
                try await Self.post(middle, to: system) { answers.countAnswer() }
            }()
            await answers.answered(200)
            try await Self.run("pg_dump", "-Fc", "-n", system.schema, "-f", file, "-d", system.conninfo)
            await answers.answered(500)

            // What comes after it and before the pause.
            try await system.plantMalformedJobs(2, from: 3)
            try await system.connect(bundle: Self.lateBundle)
            try await system.eventually("two more letters and an app are copied") {
                let directory = try await system.publishedDirectory()
                let letters = try await Self.facts(system).letters
                return letters == 5 && directory.contains(Self.lateBundle)
            }

            // Pause, and let what is in hand be finished.
            try await system.ratchet("queues", "pause", "--lane", "write", "--reason", "restore")
            try await system.ratchet("queues", "pause", "--lane", "write.live", "--reason", "restore")
            try await system.eventually("no writer holds a job") {
                try await system.lanes().allSatisfy { !$0.lane.name.hasPrefix("write") || $0.pending == 0 }
            }
            let atPause = try await system.ownerWrites()
            try await posting
            try await Self.post(late, to: system)
            #expect(try await system.ownerWrites() == atPause, "nothing is written while the lanes are paused")

            // Restore into a new database, and point the writers there.
            await system.writer.stop()
            try await Self.run("psql", "-qd", system.conninfo, "-c", "CREATE DATABASE \(fresh)")
            let restored = try await system.moved(to: system.database.conninfo(database: fresh))
            try await Self.run("pg_restore", "--exit-on-error", "-d", restored.conninfo, file)
            try await restored.ratchet("migrate")
            try await Self.run(
                "psql", "-qd", restored.conninfo, "-c",
                """
                UPDATE \(restored.schema).app_directory
                SET version = floor(extract(epoch FROM clock_timestamp()) * 1000000)
                """)
            try await restored.forgetCopiedLetters()
            try await restored.writer.start()
            let inBackup = try await restored.ownerWrites()
            try await restored.eventually("the directory is that of the backup") {
                try await !restored.publishedDirectory().contains(Self.lateBundle)
            }
            try await restored.ratchet("queues", "resume", "--lane", "write")
            try await restored.ratchet("queues", "resume", "--lane", "write.live")
            try await restored.waitUntilDrained()

            // What is there, and what is not.
            let found = try await restored.ownerWrites()
            let lost = atPause.subtracting(inBackup)
            tell(
                "backup: \(inBackup.count) owner writes in it, \(lost.count) settled after it, \(found.count) at the end"
            )
            #expect(!inBackup.isEmpty && !lost.isEmpty && atPause.isSuperset(of: inBackup))
            let written = early.ownerWrites + middle.ownerWrites + late.ownerWrites
            #expect(found.count == written - lost.count)
            #expect(found.isSuperset(of: inBackup) && found.isDisjoint(with: lost))
            try await WholeSystemTests.checkRows(restored, early)
            try await WholeSystemTests.checkRows(restored, late)
            try await restored.eventually("all letters are copied, none twice") {
                try await Self.facts(restored).letters == 5
            }
            let facts = try await Self.facts(restored)
            #expect(facts.orders == ["organization:other"] && facts.ordersInRedis == facts.orders)
            #expect(facts.letters == 5 && facts.lettersInRedis == 5)
            #expect(!restored.writer.lines.contains { $0.contains("queue seeded") }, "Redis forgot nothing")
            let replies = try await Self.post(people(170..<172), to: restored)
            #expect(replies == 16)
            await restored.leave()
        } catch {
            Issue.record("\(error)\n\(system.tails)")
        }
        await system.stop()
        try await Self.run("psql", "-qd", system.conninfo, "-c", "DROP DATABASE IF EXISTS \(fresh) WITH (FORCE)")
    }

    /// Posts over four connections.
    /// - Returns: how many calls were answered.
    @discardableResult
    private static func post(
        _ workload: Workload, to system: RunningSystem, _ done: @escaping @Sendable () -> Void = {}
    ) async throws -> Int {
        try await withThrowingTaskGroup(of: Void.self) { group in
            for lane in 0..<4 {
                let scripts = stride(from: lane, to: workload.scripts.count, by: 4).map { workload.scripts[$0] }
                group.addTask { try await system.post(scripts, done) }
            }
            try await group.waitForAll()
        }
        return workload.scripts.reduce(0) { $0 + $1.count }
    }

    private struct Facts {
        var letters = 0
        var lettersInRedis = 0
        var orders: [String] = []
        var ordersInRedis: [String] = []
    }

    private static func facts(_ system: RunningSystem) async throws -> Facts {
        var facts = Facts()
        facts.lettersInRedis = try await system.deadLetters()
        facts.ordersInRedis = try await system.loop.run {
            try await QueueOrders(client: system.client, keys: system.keys).list().map {
                "\($0.scope.rawValue):\($0.target)"
            }
        }
        let (letters, orders) = try await system.loop.run {
            try await system.postgres.withConnection { connection throws(PostgresError) in
                let orders = try await LaneOrders.list(nowMicroseconds: 0, connection)
                let letters = try await DeadLetters.count(.init(), connection)
                return (letters, orders.map { "\($0.scope):\($0.target)" })
            }
        }
        facts.letters = Int(letters)
        facts.orders = orders
        return facts
    }

    private static func run(_ program: String, _ arguments: String...) async throws {
        let result = try await CommandRun.of(
            TestPostgres.program(program), arguments, ["PATH": "/usr/bin:/bin", "LC_ALL": "C"])
        guard result.code == 0 else {
            throw RatchetProcess.Failure(description: "\(program) ended with \(result.code): \(result.errors)")
        }
    }
}
