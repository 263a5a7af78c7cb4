import EventLoop
import Foundation
import Redis
import RedisQueue
import Service
import Store
import Synchronization
import TestSupport
import Testing
import Wire

@testable import CLI
@testable import OpsCore

@Suite struct DoctorTests {
    /// A Redis as it must be.
    private func goodRedis(_ arguments: [String] = []) async throws -> TestRedis {
        try await TestRedis.start(
            .init(appendOnly: true, appendFsync: "always", maxMemory: "64mb", arguments: arguments))
    }

    private func examine(
        _ installation: TestInstallation, _ changed: [String: String] = [:]
    ) async throws -> (code: Int32, checks: [(name: String, status: String, message: String, remedy: String?)]) {
        let output = await installation.run(["doctor", "--json"], environment: changed, time: SystemTime())
        let document = try parsed(output.text)
        let checks = document["checks"]?.elements.map { check in
            (
                name: check["name"]?.string ?? "", status: check["status"]?.string ?? "",
                message: check["message"]?.string ?? "", remedy: check["remedy"]?.string
            )
        }
        return (output.exitCode, checks ?? [])
    }

    private func statuses(
        _ checks: [(name: String, status: String, message: String, remedy: String?)], _ name: String
    ) -> [String] { checks.filter { $0.name == name }.map(\.status) }

    /// What a writer does at its start.
    private func seed(_ installation: TestInstallation, publish: Bool = true) async throws {
        let directory = try await installation.store { try await DirectorySnapshot.load($0) }
        let keys = QueueKeys(prefix: installation.prefix, partitions: 2)
        let address = installation.redis.address
        let loop = EventLoop(name: "ops-seed")
        defer { loop.stop() }
        try await loop.run {
            let client = RedisClient(loop: loop, address: address, configuration: RedisClientConfiguration())
            _ = await client.waitUntilConnected(milliseconds: 10_000)
            if publish {
                _ = try await PublishedDirectory(client: client, keys: keys).publish(
                    version: directory.version, body: AppDirectory.encode([]))
            }
            try await QueueSeed(client: client, keys: keys).seed()
            await client.close()
        }
    }

    @Test func aHealthyInstallationHasNoFailedCheck() async throws {
        let redis = try await goodRedis()
        let installation = try await TestInstallation.make(redis: redis)
        _ = await installation.run("orgs", "create", "demo")
        _ = await installation.run("apps", "connect", "com.example.app", "--org", "demo")
        try await seed(installation)
        let found = try await examine(installation, ["RATCHET_MODE": "development"])
        #expect(found.code == 0, "\(found.checks)")
        for name in [
            "configuration", "certificates", "redis", "redis.version", "redis.memory", "redis.settings", "queue",
            "directory", "postgres", "schema", "partitions", "apps", "clock.redis", "clock.postgres", "proxy",
        ] {
            #expect(statuses(found.checks, name) == ["ok"], "\(name): \(found.checks)")
        }
        #expect(statuses(found.checks, "ratchet-writer") == ["warn"])
        #expect(
            found.checks.first { $0.name == "certificates" }?.message.contains(
                "63343abfb89a6a03ebb57e9b3f5fa7be7c4f5c756f3017b3a8c488c3653e9179") == true)
        let text = await installation.run(["doctor"], environment: ["RATCHET_MODE": "development"], time: SystemTime())
        #expect(text.exitCode == 0 && text.text.contains("\nok    schema "))
        #expect(text.text.contains("\nwarn  ratchet-writer "))
        #expect(text.text.contains("mend: start it"))
        await redis.remove()
    }

    @Test func aRedisThatIsDownExitsWithThree() async throws {
        let installation = try await TestInstallation.make()
        let found = try await examine(installation, ["RATCHET_REDIS_URL": "unix:///tmp/ratchet-no-redis.sock"])
        #expect(found.code == 3)
        #expect(statuses(found.checks, "redis") == ["fail"])
        #expect(statuses(found.checks, "postgres") == ["ok"])
        // Nothing is said of what could not be looked at.
        #expect(statuses(found.checks, "queue").isEmpty && statuses(found.checks, "directory").isEmpty)
    }

    @Test func whoWaitsIsToldThatItStillWorks() async {
        let said = Mutex<[String]>([])
        let session = Session(environment: ["RATCHET_REDIS_URL": "unix:///tmp/ratchet-no-redis.sock"]) { line in
            said.withLock { $0.append(line) }
        }
        let output = await CommandLineTool(session: session).run(["queues"])
        #expect(output.exitCode == 3)
        #expect(said.withLock { $0.first } == "queues: still at work after 2 s")
    }

    @Test func aPostgresThatIsDownExitsWithThree() async throws {
        let redis = try await goodRedis()
        let installation = try await TestInstallation.make(redis: redis)
        let found = try await examine(installation, ["RATCHET_PG": "host=/tmp/ratchet-no-postgres dbname=x"])
        #expect(found.code == 3)
        #expect(statuses(found.checks, "postgres") == ["fail"])
        #expect(statuses(found.checks, "redis") == ["ok"])
        await redis.remove()
    }

    @Test func aRedisThatMayLoseWritesIsNamedWithTheCommandThatMendsIt() async throws {
        let redis = try await goodRedis()
        let installation = try await TestInstallation.make(redis: redis)
        try await seed(installation)
        for setting in [("maxmemory-policy", "allkeys-lru"), ("appendfsync", "everysec")] {
            _ = try await redis.command(["CONFIG", "SET", .text(setting.0), .text(setting.1)])
        }
        let found = try await examine(installation)
        #expect(found.code == 1)
        let remedies = found.checks.filter { $0.name == "redis.settings" }.compactMap(\.remedy)
        #expect(remedies.contains { $0.contains("redis-cli CONFIG SET maxmemory-policy noeviction") })
        #expect(remedies.contains { $0.contains("redis-cli CONFIG SET appendfsync always") })
        let unchecked = try await examine(installation, ["RATCHET_REDIS_UNCHECKED": "1"])
        #expect(Set(statuses(unchecked.checks, "redis.settings")) == ["warn"])
        #expect(unchecked.code == 0)
        await redis.remove()
    }

    @Test func aMissingSchemaAWipedRedisAndAnAbsentDirectoryAreNamed() async throws {
        let redis = try await goodRedis()
        let bare = try await TestInstallation.make(migrated: false, redis: redis)
        let found = try await examine(bare)
        #expect(found.code == 1)
        #expect(statuses(found.checks, "schema") == ["fail"])
        #expect(found.checks.first { $0.name == "schema" }?.remedy == "ratchet migrate")
        #expect(statuses(found.checks, "queue") == ["fail"])

        let migrated = try await TestInstallation.make(redis: redis)
        try await seed(migrated, publish: false)
        let second = try await examine(migrated)
        #expect(statuses(second.checks, "directory") == ["fail"])
        #expect(statuses(second.checks, "apps") == ["warn"])
        // An app connected since, which no writer has published.
        try await seed(migrated)
        _ = await migrated.run("orgs", "create", "demo")
        #expect(
            try await examine(migrated).checks.first { $0.name == "directory" }?.message.contains("older") == true)
        await redis.remove()
    }

    @Test func anotherNumberOfPartitionsIsAFault() async throws {
        let redis = try await goodRedis()
        let installation = try await TestInstallation.make(redis: redis)
        try await seed(installation)
        _ = try await installation.store { try await InstallationFacts.fix("partitions", "2", $0) }
        #expect(statuses(try await examine(installation).checks, "partitions") == ["ok"])
        let found = try await examine(installation, ["RATCHET_PARTITIONS": "4"])
        #expect(found.code == 1)
        for name in ["partitions", "queue"] {
            #expect(found.checks.first { $0.name == name }?.remedy == "set RATCHET_PARTITIONS=2", "\(name)")
        }
        await redis.remove()
    }

    @Test func aWrongConfigurationIsNamedLineByLineAndUnknownNamesWarned() async throws {
        let installation = try await TestInstallation.make()
        let bad = try await examine(installation, ["RATCHET_PARTITIONS": "3", "RATCHET_BATCH": "0"])
        #expect(bad.code == 1)
        #expect(statuses(bad.checks, "configuration") == ["fail", "fail"])
        #expect(statuses(bad.checks, "certificates") == ["ok"])
        let odd = try await examine(
            installation, ["RATCHET_PARTITONS": "2", "RATCHET_REDIS_URL": "unix:///tmp/ratchet-no-redis.sock"])
        #expect(
            odd.checks.contains { $0.name == "configuration" && $0.remedy == "did you mean RATCHET_PARTITIONS?" })
    }

    @Test func theProxyInFrontIsAskedFor() async throws {
        let away = ["RATCHET_REDIS_URL": "unix:///tmp/ratchet-no-redis.sock"]
        let installation = try await TestInstallation.make(changing: away)
        let open = try await examine(installation, ["RATCHET_INGRESS_HOST": "0.0.0.0"])
        #expect(open.checks.first { $0.name == "proxy" }?.message.contains("without TLS") == true)
        let untrusting = try await examine(installation, ["RATCHET_TRUSTED_PROXIES": "none"])
        #expect(untrusting.checks.contains { $0.name == "proxy" && $0.message.hasPrefix("no proxy is trusted") })
    }

    @Test func theKernelsTableTellsWhoListens() {
        let table = """
              sl  local_address rem_address   st tx_queue
               0: 0100007F:1F90 00000000:0000 0A 00000000:00000000
               1: 00000000:01BB 00000000:0000 01 00000000:00000000
               2: 00000000000000000000000000000000:01BB 00000000000000000000000000000000:0000 0A 0

            """
        #expect(Doctor.listens(inTable: table, onPort: 8080))
        #expect(Doctor.listens(inTable: table, onPort: 443))
        #expect(!Doctor.listens(inTable: table, onPort: 80))
        #expect(!Doctor.listens(inTable: String(table.split(separator: "   2:")[0]), onPort: 443))
        #expect(Doctor.isLoopback("127.0.0.1") && Doctor.isLoopback("::1") && !Doctor.isLoopback("0.0.0.0"))
    }

    @Test func processesAreAskedAtTheirOperationsAddress() async throws {
        let away = ["RATCHET_REDIS_URL": "unix:///tmp/ratchet-no-redis.sock"]
        let installation = try await TestInstallation.make(changing: away)
        let path = try #require(installation.environment["RATCHET_RUN_DIR"])
        defer { try? FileManager.default.removeItem(atPath: path + "/..") }
        let folder = RunFolder(path: path)
        let loop = EventLoop(name: "ops-operations")
        defer { loop.stop() }
        func server(_ name: String, _ health: Health, in folder: RunFolder) throws -> OperationsServer.Listening {
            try folder.write("\(name).pid", "\(getpid())\n")
            let server = OperationsServer(
                name: name, loop: loop, metrics: Metrics(),
                lifecycle: ProcessLifecycle(graceMilliseconds: 1000, time: SystemTime()))
            server.addReadiness("postgres") { health }
            return try server.start(at: ListenAddress(host: "127.0.0.1", port: 0), runFolder: folder)
        }
        let good = try server("ingress", .good, in: folder)
        let bad = try server("writer", .bad("postgres is away"), in: folder)
        // A second writer with a folder of its own, beside.
        let beside = try server("writer", .good, in: RunFolder(path: path + "/../ratchet-writer-2"))
        // A process that died: no process has this number.
        try folder.write("verifier.pid", "2147483646\n")
        let found = try await examine(installation)
        #expect(statuses(found.checks, "ratchet-ingress") == ["ok"])
        #expect(statuses(found.checks, "ratchet-writer") == ["fail", "ok"])
        #expect(
            found.checks.contains { $0.name == "ratchet-writer" && $0.message.contains("postgres: postgres is away") })
        #expect(
            found.checks.contains { $0.name == "ratchet-verifier" && $0.message == "process 2147483646 has died" })
        for listening in [good, bad, beside] { await listening.stop() }
        let gone = try await examine(installation)
        #expect(statuses(gone.checks, "ratchet-ingress") == ["fail"])
    }

    @Test func clocksThatDisagreeAreNamed() {
        let doctor = Doctor(environment: [:], loop: EventLoop(name: "ops-clock"))
        let second: Int64 = 1_000_000
        #expect(doctor.clock("c", theirs: 5 * second, 4 * second, 6 * second, "Redis").status == .ok)
        #expect(doctor.clock("c", theirs: 7 * second + 1, 4 * second, 6 * second, "Redis").status == .warn)
        let behind = doctor.clock("c", theirs: 0, 70 * second, 71 * second, "Redis")
        #expect(behind.status == .fail && behind.message.contains("70000 ms behind"))
    }
}
