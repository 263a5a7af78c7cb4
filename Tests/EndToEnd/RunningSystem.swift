import EventLoop
import Foundation
import Jobs
import Postgres
import Redis
import RedisQueue
import Service
import Store
import TestSupport
import Wire

/// Redis, Postgres, an organization with an app, and the processes, all of one test's own.
final class RunningSystem: Sendable {
    /// What differs from test to test.
    struct Layout {
        /// Nil starts a server of the system's own. `server` is one of several then, which the caller removes.
        var redis: (server: TestRedis, address: RedisAddress, url: String)?
        /// Nil takes the server that all tests share, which nobody may stop.
        var database: TestPostgres?
        /// How many verifiers and how many writers.
        var workers = 1
        /// Variables on top of the usual ones.
        var environment: [String: String] = [:]
        /// The ingress and the first worker of each kind reach Redis through a proxy that can cut connections.
        var behindProxy = false
    }

    let redis: TestRedis
    let proxy: CuttingProxy?
    let database: TestPostgres
    let schema: String
    let ingress: RatchetProcess
    let verifiers: [RatchetProcess]
    let writers: [RatchetProcess]
    let port: Int
    let loop: EventLoop
    let postgres: PostgresClient
    let client: RedisClient
    let keys: QueueKeys
    let folder: String
    let conninfo: String
    private let environment: [String: String]

    var verifier: RatchetProcess { verifiers[0] }
    var writer: RatchetProcess { writers[0] }
    var processes: [RatchetProcess] { [ingress] + verifiers + writers }

    private static let organization = "demo"

    private init(
        redis: TestRedis, proxy: CuttingProxy?, database: TestPostgres, schema: String, ingress: RatchetProcess,
        verifiers: [RatchetProcess], writers: [RatchetProcess], port: Int, loop: EventLoop, postgres: PostgresClient,
        client: RedisClient, keys: QueueKeys, folder: String, environment: [String: String]
    ) {
        self.redis = redis
        self.proxy = proxy
        self.database = database
        self.schema = schema
        self.ingress = ingress
        self.verifiers = verifiers
        self.writers = writers
        self.port = port
        self.loop = loop
        self.postgres = postgres
        self.client = client
        self.keys = keys
        self.folder = folder
        self.environment = environment
        conninfo = environment["RATCHET_PG"] ?? ""
    }

    static func start(extraRoots: String, _ layout: Layout = Layout()) async throws -> RunningSystem {
        let redis: TestRedis
        if let given = layout.redis {
            redis = given.server
        } else {
            redis = try await TestRedis.start(
                TestRedis.Options(
                    appendOnly: true, appendFsync: "always", maxMemory: "1gb",
                    arguments: ["--maxmemory-policy", "noeviction"]))
        }
        let database = try layout.database ?? TestPostgres.shared.get()
        let schema = database.schema()
        let loop = EventLoop(name: "end-to-end")
        let postgres = PostgresClient(
            PostgresConfiguration(conninfo: database.conninfo, schema: schema), on: loop)
        try await loop.run { try await prepare(postgres) }
        let folder = "/tmp/ratchet-e2e-\(UUID().uuidString.prefix(8))"
        try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: true)
        try extraRoots.write(toFile: folder + "/roots.pem", atomically: true, encoding: .utf8)
        let keys = QueueKeys(prefix: "e2e:", partitions: 16)
        let environment = [
            "RATCHET_MODE": "development", "RATCHET_SECRET": String(repeating: "s", count: 32),
            "RATCHET_REDIS_URL": layout.redis?.url ?? redis.url, "RATCHET_PG": database.conninfo,
            "RATCHET_PG_SCHEMA": schema,
            "RATCHET_KEY_PREFIX": keys.prefix, "RATCHET_INGRESS_PORT": "0",
            "RATCHET_EXTRA_APPLE_ROOTS": folder + "/roots.pem", "RATCHET_LOG_LEVEL": "info",
        ].merging(layout.environment) { $1 }
        let proxy =
            layout.behindProxy ? try CuttingProxy(to: redis.socketPath) : nil
        // Files in the run folder are named after the program, so a second one of a kind has a folder of its own.
        func process(_ name: String, _ number: Int = 0) -> RatchetProcess {
            var own = environment
            own["RATCHET_RUN_DIR"] = "\(folder)/\(number)"
            if let proxy, number == 0 { own["RATCHET_REDIS_URL"] = proxy.address.description }
            return RatchetProcess(name, environment: own)
        }
        let writers = (0..<layout.workers).map { process("ratchet-writer", $0) }
        let verifiers = (0..<layout.workers).map { process("ratchet-verifier", $0) }
        let ingress = process("ratchet-ingress")
        try await writers[0].start(untilItSays: "queue seeded")
        for worker in writers.dropFirst() + verifiers { try await worker.start() }
        try await ingress.start(untilItSays: "\"listening\"")
        let address = layout.redis?.address ?? redis.address
        let client = try await loop.run {
            let client = RedisClient(loop: loop, address: address, configuration: RedisClientConfiguration())
            _ = await client.waitUntilConnected(milliseconds: 5000)
            return client
        }
        let port = ingress.lines.compactMap(listeningPort).last ?? 0
        return RunningSystem(
            redis: redis, proxy: proxy, database: database, schema: schema, ingress: ingress, verifiers: verifiers,
            writers: writers, port: port, loop: loop, postgres: postgres, client: client, keys: keys, folder: folder,
            environment: environment)
    }

    /// The same system with one writer for another database, which is not started. The other writers must have been
    /// stopped; `leave()` ends what is new.
    func moved(to conninfo: String) async throws -> RunningSystem {
        var own = environment
        own["RATCHET_PG"] = conninfo
        own["RATCHET_RUN_DIR"] = "\(folder)/moved"
        let postgres = try await loop.run { [loop, schema] in
            PostgresClient(PostgresConfiguration(conninfo: conninfo, schema: schema), on: loop)
        }
        return RunningSystem(
            redis: redis, proxy: proxy, database: database, schema: schema, ingress: ingress, verifiers: verifiers,
            writers: [RatchetProcess("ratchet-writer", environment: own)], port: port, loop: loop, postgres: postgres,
            client: client, keys: keys, folder: folder, environment: own)
    }

    /// Ends what `moved` made.
    func leave() async {
        await writer.stop()
        try? await loop.run { [postgres] in postgres.close() }
    }

    /// Runs the operators' command line, which must succeed.
    func ratchet(_ arguments: String...) async throws {
        let program = try RatchetProcess.binaries().appendingPathComponent("ratchet").path
        let result = try await CommandRun.of(program, arguments, environment.merging(["PATH": "/usr/bin:/bin"]) { $1 })
        guard result.code == 0 else {
            throw RatchetProcess.Failure(
                description: "ratchet \(arguments.joined(separator: " ")) ended with \(result.code): \(result.errors)")
        }
    }

    /// Returns once a condition holds; fails after 20 s.
    func eventually(_ claim: String, _ condition: () async throws -> Bool) async throws {
        let end = loop.time.monotonicNanoseconds + 20_000_000_000
        while try await !condition() {
            guard loop.time.monotonicNanoseconds < end else {
                throw RatchetProcess.Failure(description: "never came true: \(claim)\n\(tails)")
            }
            await loop.sleep(milliseconds: 20)
        }
    }

    private static func prepare(_ postgres: PostgresClient) async throws {
        let now = SystemTime().wallMicroseconds
        try await postgres.withConnection { connection throws(PostgresError) in
            do {
                _ = try await Migrator.migrate(connection)
                _ = try await Organizations.create(
                    id: organization, name: "Demo", actor: "test", nowMicroseconds: now, connection)
                _ = try await Apps.connect(
                    organization: organization, store: .appStore, bundleID: Workload.bundle, teamID: "ABCDE12345",
                    actor: "test", nowMicroseconds: now, connection)
            } catch let error as PostgresError {
                throw error
            } catch {
                throw PostgresError(.usage, "\(error)")
            }
        }
    }

    private static func listeningPort(_ line: String) -> Int? {
        guard line.contains("\"listening\""), let range = line.range(of: "\"port\":") else { return nil }
        return Int(line[range.upperBound...].prefix { $0.isNumber })
    }

    /// Sends scripts one after the other over one connection. A 503 is sent again, as an SDK would; everything else
    /// must be what the call deserves.
    func post(_ scripts: [[Workload.Call]], _ done: @Sendable () -> Void) async throws {
        let connection = try await RawHTTPClient.connect(host: "127.0.0.1", port: port)
        for call in scripts.joined() {
            let request =
                "POST /api/sdk/v1/\(call.path) HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                + "Content-Length: \(call.body.utf8.count)\r\n\r\n\(call.body)"
            var response = try await connection.exchange(request)
            while response.status == 503 { response = try await connection.exchange(request) }
            guard response.status == 200 else {
                throw RatchetProcess.Failure(description: "\(response.status) \(response.text) for \(call.body)")
            }
            let stored = !response.text.contains("\"stored\":false")
            guard stored != call.isDropped else {
                throw RatchetProcess.Failure(description: "wrongly stored or dropped: \(call.body)")
            }
            done()
        }
    }

    /// Puts jobs into the write lane that no rule of the door would let in.
    /// - Parameter first: number of the first of them; no two of a test may have the same.
    func plantMalformedJobs(_ count: Int, from first: Int = 0) async throws {
        try await loop.run { [client, keys] in
            for index in first..<(first + count) {
                _ = try await client.command([
                    "XADD", .text(keys.lane(index, .write)), "*", "h",
                    .text("identify|1|\(1_700_000_000_000_000 + index)|0|demo|1700000000000|0|||"), "p",
                    #"{"appUserId":"","bundleId":"com.example.app"}"#,
                ])
            }
        }
    }

    /// Returns once nothing waits, is pending or delayed.
    func waitUntilDrained() async throws {
        while true {
            let lanes = try await loop.run { [client, keys] in
                try await QueueStatistics(client: client, keys: keys).lanes()
            }
            let counts = try await counts()
            if lanes.allSatisfy({ $0.waiting == 0 && $0.pending == 0 && $0.due == 0 }) && counts.unresolvedInRedis == 0
            {
                return
            }
            await loop.sleep(milliseconds: 50)
        }
    }

    struct Counts {
        var customers = 0
        var purchases = 0
        var ownerWrites = 0
        var transactions = 0
        var dropped = 0
        /// Counts of dropped writes that have not reached Postgres.
        var unresolvedInRedis = 0
    }

    func counts() async throws -> Counts {
        try await loop.run { [postgres, client, keys] in
            let waiting = try await PendingCounts(client: client, key: keys.unresolved).all().count
            return try await postgres.withConnection { connection throws(PostgresError) in
                func count(_ sql: String) async throws(PostgresError) -> Int {
                    Int(try await connection.query("SELECT (\(sql))::bigint AS n").first?.int64("n") ?? 0)
                }
                return Counts(
                    customers: try await count("SELECT count(*) FROM customers"),
                    purchases: try await count("SELECT count(*) FROM purchases"),
                    ownerWrites: try await count("SELECT count(*) FROM purchase_owner_writes"),
                    transactions: try await count("SELECT count(*) FROM transactions"),
                    dropped: try await count("SELECT coalesce(sum(dropped), 0) FROM unresolved_bundles"),
                    unresolvedInRedis: waiting)
            }
        }
    }

    func lanes() async throws -> [LaneStatistics] {
        try await loop.run { [client, keys] in try await QueueStatistics(client: client, keys: keys).lanes() }
    }

    func deadLetters() async throws -> Int { Int(try await lanes().reduce(0) { $0 + $1.dead }) }

    /// Makes writers copy all dead letters to Postgres anew.
    func forgetCopiedLetters() async throws {
        try await loop.run { [client, keys] in
            for partition in 0..<keys.partitions {
                _ = try await client.command(["DEL", .text(keys.copied(partition))])
            }
        }
    }

    /// The app directory in Redis, as text.
    func publishedDirectory() async throws -> String {
        try await loop.run { [client, keys] in
            let snapshot = try await PublishedDirectory(client: client, keys: keys).snapshot()
            return String(decoding: snapshot?.body ?? [], as: UTF8.self)
        }
    }

    func connect(bundle: String) async throws {
        try await loop.run { [postgres] in
            try await postgres.withConnection { connection throws(PostgresError) in
                do {
                    _ = try await Apps.connect(
                        organization: Self.organization, store: .appStore, bundleID: bundle, teamID: "ABCDE12345",
                        actor: "test", nowMicroseconds: SystemTime().wallMicroseconds, connection)
                } catch let error as PostgresError {
                    throw error
                } catch {
                    throw PostgresError(.usage, "\(error)")
                }
            }
        }
    }

    /// The keys of all owner writes.
    func ownerWrites() async throws -> Set<String> {
        try await loop.run { [postgres] in
            try await postgres.withConnection { connection throws(PostgresError) in
                var keys: Set<String> = []
                for row in try await connection.query(
                    """
                    SELECT concat_ws(' ', store, encode(lineage, 'hex'), stamp, customer) AS key
                    FROM purchase_owner_writes
                    """
                ).rows { keys.insert(try row.string("key")) }
                return keys
            }
        }
    }

    func customer(_ id: String) async throws -> CustomerRecord? {
        try await loop.run { [postgres] in
            try await postgres.withConnection { connection throws(PostgresError) in
                try await Customers.show(
                    organization: Self.organization, appUserID: id, nowMicroseconds: SystemTime().wallMicroseconds,
                    connection)
            }
        }
    }

    func purchase(_ id: String) async throws -> (PurchaseRecord, [PurchaseMove])? {
        try await loop.run { [postgres] in
            try await postgres.withConnection {
                connection throws(PostgresError) -> (PurchaseRecord, [PurchaseMove])? in
                guard
                    let record = try await Purchases.show(
                        organization: Self.organization, originalTransactionID: id, store: .appStore,
                        nowMicroseconds: SystemTime().wallMicroseconds, connection)
                else { return nil }
                return (record, try await Purchases.history(of: record, connection))
            }
        }
    }

    /// What kinds of sockets a process has open, from /proc.
    func openSockets(of process: RatchetProcess) -> Set<String> {
        guard let id = process.processID,
            let descriptors = try? FileManager.default.contentsOfDirectory(atPath: "/proc/\(id)/fd")
        else { return [] }
        let inodes = descriptors.compactMap { descriptor -> Substring? in
            guard
                let target = try? FileManager.default.destinationOfSymbolicLink(atPath: "/proc/\(id)/fd/\(descriptor)"),
                target.hasPrefix("socket:[")
            else { return nil }
            return target.dropFirst(8).dropLast()
        }
        let unix = Set(Self.table("unix", id).compactMap { $0.count > 6 ? $0[6] : nil })
        let listening = Set(
            Self.table("tcp", id).filter { $0.count > 9 && $0[3] == "0A" && $0[1].hasPrefix("0100007F:") }.map { $0[9] }
        )
        return Set(
            inodes.map { inode in
                unix.contains(inode)
                    ? "unix" : listening.contains(inode) ? "tcp listening on loopback" : "another socket"
            })
    }

    /// The rows of a kernel table. Such a file has no size to go by, and is read to its end in one go.
    private static func table(_ name: String, _ process: Int32) -> [[Substring]] {
        let text = String(decoding: TextFile.read("/proc/\(process)/net/\(name)") ?? [], as: UTF8.self)
        return text.split(separator: "\n").dropFirst().map { $0.split(separator: " ") }
    }

    /// The last words of every process, for a failure's report.
    var tails: String {
        processes.map { "\($0.name):\n" + $0.lines.suffix(8).joined(separator: "\n") }
            .joined(separator: "\n")
    }

    func stop() async {
        for process in processes { await process.stop() }
        try? await loop.run { [client, postgres] in
            await client.close()
            postgres.close()
        }
        proxy?.stop()
        await redis.remove()
        try? FileManager.default.removeItem(atPath: folder)
    }
}
