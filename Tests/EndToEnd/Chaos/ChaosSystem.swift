import EventLoop
import Foundation
import Jobs
import Postgres
import Redis
import RedisQueue
import Synchronization
import TestSupport

/// A whole system to be mistreated: two verifiers and two writers, a Redis and a Postgres of its own.
final class ChaosSystem: Sendable {
    let system: RunningSystem
    private let outageMilliseconds: Int64
    private let ends = Mutex(0)
    private var redis: TestRedis { system.redis }
    private var database: TestPostgres { system.database }

    private static let memory = "1gb"
    private static let listening = "\"listening\""
    /// A real pause of Redis lasts seconds; a longer one is the same as a frozen Redis.
    private static let longestSleepMilliseconds: Int64 = 8000
    /// From the head of the next reply to the middle of a full fetch.
    private static let bytesBeforeCut = 1...50_000
    /// Enough for a client to be back at work before it is cut again.
    private static let cutMilliseconds: Int64 = 700
    /// Some writes still fit, the last one only in part.
    private static let bytesLeftOnDisk = 20_000
    /// A second fault comes while the first one is being felt.
    private static let overlapMilliseconds: Int64 = 500

    init(pki: TestPKI, outageMilliseconds: Int64) async throws {
        self.outageMilliseconds = outageMilliseconds
        var layout = RunningSystem.Layout()
        layout.database = try TestPostgres()
        layout.workers = 2
        layout.behindProxy = true
        // The ingress comes back at the same place, and one person's retries are not a flood.
        layout.environment = [
            "RATCHET_INGRESS_PORT": String(try LoopbackPort.free()), "RATCHET_LIMIT_UNATTESTED_PER_MINUTE": "0",
        ]
        system = try await RunningSystem.start(extraRoots: pki.rootPEM, layout)
    }

    func stop() async {
        await system.stop()
    }

    /// A fault has ended, or is what it is.
    struct Injected: Sendable {
        /// Monotonic nanoseconds: when the dependency was back, or when a process was killed.
        let end: Int64
        /// What an operator's supervisor does meanwhile.
        var rest: @Sendable () async throws -> Void = {}
    }

    /// Brings a fault about and waits until it has ended.
    func inject(_ fault: Fault) async throws -> Injected {
        switch fault {
        case .ingressKilled: return kill([system.ingress])
        case .verifierKilled: return kill([system.verifier])
        case .writerKilled: return kill([system.writer])
        case .allWorkersKilled: return kill(system.verifiers + system.writers)
        case .rollingRestart: try await restartAll()
        case .verifierFrozen: try await freeze(system.verifier)
        case .writerFrozen: try await freeze(system.writer)
        case .redisRestarted: try await redis.restart()
        case .redisDown:
            await redis.stop()
            await outage()
            try await redis.start()
        case .redisFrozen:
            redis.freeze()
            await outage()
            redis.thaw()
        case .redisClientsKilled: try await redis.command(["CLIENT", "KILL", "TYPE", "normal"])
        case .redisScriptsFlushed: try await redis.command(["SCRIPT", "FLUSH"])
        case .redisSleeps:
            let milliseconds = min(outageMilliseconds, Self.longestSleepMilliseconds)
            try await redis.command(["DEBUG", "SLEEP", .text(String(Double(milliseconds) / 1000))])
        case .redisFull:
            try await redis.command(["CONFIG", "SET", "maxmemory", "1mb"])
            await outage()
            try await redis.command(["CONFIG", "SET", "maxmemory", .text(Self.memory)])
        case .redisReadOnly:
            // Nobody listens there, so nothing is ever copied from it.
            try await redis.command(["REPLICAOF", "127.0.0.1", "1"])
            await outage()
            try await redis.command(["REPLICAOF", "NO", "ONE"])
        case .redisConnectionsCut: await cutConnections()
        case .redisMisconfigured: try await failSaving()
        case .redisDiskFull: try await fillRedisDisk()
        case .postgresDown:
            try await blocking { [database] in try database.stop() }
            await outage()
            try await blocking { [database] in try database.start() }
        case .postgresFrozen:
            database.freeze()
            await outage()
            database.thaw()
        case .postgresRestarted: try await restartPostgresInATransaction()
        case .postgresBackendsTerminated:
            let connection = try await connectToPostgres()
            try await terminateBackends(connection)
            try await system.loop.run { connection.close() }
        case .postgresOutOfConnections: try await takeAllConnections()
        case .postgresDiskFull: try await fillPostgresDisk()
        case .bothDown:
            await redis.stop()
            try await blocking { [database] in try database.stop() }
            await outage()
            try await redis.start()
            await outage()
            try await blocking { [database] in try database.start() }
        case .workersKilledWhilePostgresFrozen:
            database.freeze()
            await system.loop.sleep(milliseconds: Self.overlapMilliseconds)
            let killed = kill(system.verifiers + system.writers)
            await outage()
            database.thaw()
            return Injected(end: now, rest: killed.rest)
        case .redisKilledWhileWritersFrozen:
            for writer in system.writers { writer.kill(SIGSTOP) }
            await system.loop.sleep(milliseconds: Self.overlapMilliseconds)
            try await redis.restart()
            await outage()
            for writer in system.writers { writer.kill(SIGCONT) }
        }
        return Injected(end: now)
    }

    // MARK: - Redis

    /// Each connection is cut again and again, after another number of bytes each time.
    private func cutConnections() async {
        let end = now + outageMilliseconds * 1_000_000
        while now < end {
            system.proxy?.cutAll(within: Self.bytesBeforeCut)
            await system.loop.sleep(milliseconds: Self.cutMilliseconds)
        }
    }

    /// A folder of the name that a snapshot is to have makes saving fail, and Redis refuses all writes after that.
    private func failSaving() async throws {
        let obstacle = redis.folder + "/dump.rdb"
        try FileManager.default.createDirectory(atPath: obstacle, withIntermediateDirectories: false)
        try await redis.command(["CONFIG", "SET", "save", "86400 1"])
        try await save(untilItSays: "err")
        await outage()
        try FileManager.default.removeItem(atPath: obstacle)
        try await save(untilItSays: "ok")
        try await redis.command(["CONFIG", "SET", "save", ""])
    }

    private func save(untilItSays status: String) async throws {
        // Refused while the log is being rewritten, which passes.
        while (try? await redis.command(["BGSAVE"])) == nil { await system.loop.sleep(milliseconds: 50) }
        let wanted = "rdb_last_bgsave_status:\(status)"
        while try await redis.command(["INFO", "persistence"]).text?.contains(wanted) != true {
            await system.loop.sleep(milliseconds: 50)
        }
    }

    /// The log may grow by a little, then every write of it fails: with a sync before each answer Redis ends itself.
    private func fillRedisDisk() async throws {
        guard let process = redis.processID else { throw RatchetProcess.Failure(description: "no redis-server") }
        let folder = redis.folder + "/appendonlydir/"
        let files = try FileManager.default.contentsOfDirectory(atPath: folder)
        let sizes = try files.map { try FileManager.default.attributesOfItem(atPath: folder + $0)[.size] as? Int ?? 0 }
        let limit = (sizes.max() ?? 0) + Self.bytesLeftOnDisk
        let run = try await CommandRun.of(
            "/usr/bin/prlimit", ["--pid", "\(process)", "--fsize=\(limit):\(limit)"], [:])
        guard run.code == 0 else { throw RatchetProcess.Failure(description: run.errors) }
        while redis.isRunning { await system.loop.sleep(milliseconds: 20) }
        await outage()
        await redis.stop()
        try await redis.start()
    }

    // MARK: - Processes

    func kill(_ victims: [RatchetProcess]) -> Injected {
        ends.withLock { $0 += victims.count }
        for victim in victims { victim.kill(SIGKILL) }
        return Injected(end: now) { [system] in
            try await withThrowingTaskGroup(of: Void.self) { group in
                for victim in victims {
                    group.addTask {
                        if victim === system.ingress {
                            try await victim.crashAndRestart(untilItSays: Self.listening)
                        } else {
                            try await victim.crashAndRestart()
                        }
                    }
                }
                try await group.waitForAll()
            }
        }
    }

    private func restartAll() async throws {
        for process in system.processes {
            let code = await process.stop()
            ends.withLock { $0 += 1 }
            guard code == 0 else {
                throw RatchetProcess.Failure(description: "\(process.name) ended with \(code) at SIGTERM")
            }
            try await process.start(untilItSays: process === system.ingress ? Self.listening : "\"started\"")
        }
    }

    private func freeze(_ victim: RatchetProcess) async throws {
        victim.kill(SIGSTOP)
        await outage()
        victim.kill(SIGCONT)
    }

    /// How often a process ended that nobody had told to.
    var unexpectedEnds: Int {
        let ended = system.processes.reduce(0) { sum, process in
            sum + process.lines.count { $0.hasPrefix("(end of life") }
        }
        return ended - ends.withLock { $0 }
    }

    // MARK: - Postgres

    /// A lock holds a writer in the middle of its transaction when the server goes.
    private func restartPostgresInATransaction() async throws {
        let connection = try await connectToPostgres()
        try await system.loop.run {
            _ = try await connection.execute("BEGIN; LOCK TABLE purchase_owner_writes IN ACCESS EXCLUSIVE MODE")
        }
        await system.loop.sleep(milliseconds: 300)
        try await blocking { [database] in
            try database.stop()
            try database.start()
        }
        try await system.loop.run { connection.close() }
    }

    private func takeAllConnections() async throws {
        let first = try await connectToPostgres()
        // Standing still, the writers can't win a freed place back.
        for writer in system.writers { writer.kill(SIGSTOP) }
        var taken = [first]
        taken += await connectUntilRefused()
        try await terminateBackends(first)
        taken += await connectUntilRefused()
        for writer in system.writers { writer.kill(SIGCONT) }
        await outage()
        let all = taken
        try await system.loop.run { for connection in all { connection.close() } }
    }

    /// Every write is answered as Postgres answers when it can't extend a file.
    private func fillPostgresDisk() async throws {
        let connection = try await connectToPostgres()
        let tables = ["customers", "purchases", "purchase_owner_writes"]
        try await system.loop.run {
            _ = try await connection.execute(
                """
                CREATE FUNCTION disk_full() RETURNS trigger LANGUAGE plpgsql AS $$
                BEGIN
                    RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = '53100';
                END $$;
                """
                    + tables.map {
                        """
                        CREATE TRIGGER disk_full BEFORE INSERT OR UPDATE ON \($0) FOR EACH STATEMENT
                            EXECUTE FUNCTION disk_full();
                        """
                    }.joined())
        }
        await outage()
        try await system.loop.run {
            _ = try await connection.execute("DROP FUNCTION disk_full() CASCADE")
            connection.close()
        }
    }

    private func connectUntilRefused() async -> [PostgresConnection] {
        var taken: [PostgresConnection] = []
        while let connection = try? await connectToPostgres() { taken.append(connection) }
        return taken
    }

    private func connectToPostgres() async throws -> PostgresConnection {
        let configuration = database.configuration(schema: system.schema)
        return try await system.loop.run { [system] in
            try await PostgresConnection.connect(configuration, on: system.loop)
        }
    }

    private func terminateBackends(_ connection: PostgresConnection) async throws {
        try await system.loop.run {
            _ = try await connection.execute(
                "SELECT pg_terminate_backend(pid, 2000) FROM pg_stat_activity WHERE application_name LIKE 'ratchet-%'")
        }
    }

    // MARK: - Observing

    /// Jobs the writers have ended since the queue was made.
    func written() async throws -> Int64 { try await statistics()["done:write"] ?? 0 }

    /// The queue's own counters, over all partitions.
    func statistics() async throws -> [String: Int64] {
        var sums: [String: Int64] = [:]
        let keys = system.keys
        for answer in try await redis.pipeline((0..<keys.partitions).map { ["HGETALL", .text(keys.stats($0))] }) {
            let items = try answer.get().elements ?? []
            for index in stride(from: 0, to: items.count - 1, by: 2) {
                if let name = items[index].text, let count = items[index + 1].text.flatMap({ Int64($0) }) {
                    sums[name, default: 0] += count
                }
            }
        }
        return sums
    }

    /// Jobs in the hands of writers. Call on the loop.
    func pendingWrites() async throws -> Int64 {
        try await QueueStatistics(client: system.client, keys: system.keys).lanes()[Lane.write.rawValue].pending
    }

    /// Whether every job that came before a moment (wall milliseconds) has left its lane: the oldest entry of a stream
    /// is the first one, since what is settled is deleted.
    func isDrained(before moment: Int64) async throws -> Bool {
        let keys = system.keys
        let lanes = (0..<keys.partitions).flatMap { partition in Lane.allCases.map { keys.lane(partition, $0) } }
        let answers = try await redis.pipeline(lanes.map { ["XRANGE", .text($0), "-", "+", "COUNT", "1"] })
        for answer in answers {
            guard let id = try answer.get().elements?.first?.elements?.first?.text else { continue }
            if let added = id.split(separator: "-").first.flatMap({ Int64($0) }), added < moment { return false }
        }
        return true
    }

    // MARK: - Waiting

    private var now: Int64 { system.loop.time.monotonicNanoseconds }

    private func outage() async { await system.loop.sleep(milliseconds: outageMilliseconds) }

    /// Off the threads that tasks need.
    private func blocking<Value: Sendable>(
        _ body: @escaping @Sendable () throws -> Value
    ) async throws -> Value {
        try await withCheckedThrowingContinuation { continuation in
            Thread.detachNewThread { continuation.resume(with: Result(catching: body)) }
        }
    }
}
