import EventLoop
import Foundation
import JSON
import OpsCore
import Postgres
import RedisQueue
import Store
import TestSupport
import Wire

@testable import CLI

/// JSON text read back.
func parsed(_ text: String) throws -> Document { Document(try JSONDocument(parsing: Array(text.utf8)).root) }

/// An installation of its own: a schema, a key prefix, and the tool in this process under a clock that stands still.
struct TestInstallation: Sendable {
    let environment: [String: String]
    let schema: String
    let prefix: String
    let redis: TestRedis

    /// 2026-11-30T00:00:00Z, where `ManualTime` stands.
    static let now: Int64 = 1_795_996_800_000_000

    /// - Parameters:
    ///   - migrated: false leaves the schema absent.
    ///   - redis: nil is the server that all tests share.
    static func make(
        migrated: Bool = true, redis: TestRedis? = nil, changing: [String: String] = [:]
    ) async throws -> TestInstallation {
        let postgres = try TestPostgres.shared.get()
        let server: TestRedis
        if let redis { server = redis } else { server = try await TestRedis.shared() }
        let schema = postgres.schema()
        let prefix = server.keyPrefix()
        var environment = [
            "RATCHET_PG": postgres.conninfo, "RATCHET_PG_SCHEMA": schema, "RATCHET_REDIS_URL": server.url,
            "RATCHET_KEY_PREFIX": prefix, "RATCHET_PARTITIONS": "2",
            "RATCHET_RUN_DIR": "/tmp/ratchet-ops-tests-\(getpid())/\(schema)/run",
            "RATCHET_SECRET": String(repeating: "s", count: 32),
        ]
        environment.merge(changing) { _, new in new }
        let installation = TestInstallation(
            environment: environment, schema: schema, prefix: prefix, redis: server)
        if migrated {
            _ = try await installation.store { connection in try await Migrator.migrate(connection) }
        }
        return installation
    }

    func run(_ arguments: String...) async -> CommandLineTool.Output { await run(arguments) }

    func run(_ arguments: [String], environment changed: [String: String] = [:], time: (any TimeSource)? = nil) async
        -> CommandLineTool.Output
    {
        let session = Session(
            environment: environment.merging(changed) { _, new in new }, time: time ?? ManualTime())
        return await CommandLineTool(session: session).run(arguments)
    }

    /// Runs a command with `--json` and reads what it says.
    func json(_ arguments: String...) async throws -> Document { try parsed(await run(arguments + ["--json"]).text) }

    /// Runs a body with a connection to the schema.
    func store<Value: Sendable>(
        _ body: @escaping @Sendable (PostgresConnection) async throws -> Value
    ) async throws -> Value {
        try await TestStore(schema: schema).withConnection(body)
    }

    func apply(_ writes: [StampedWrite]) async throws {
        _ = try await store { connection in try await SDKWrites.apply(writes, connection) }
    }
}

/// Seconds after midnight, as a stamp.
func stamp(_ seconds: Int64) -> Int64 { TestInstallation.now - 3_600_000_000 + seconds * 1_000_000 }

func identify(
    _ user: String, at stamp: Int64, organization: String = "demo", attributes: [(String, String?)] = [],
    attested: Bool = false
) -> StampedWrite {
    SampleWrite.identify(
        user, at: stamp, organization: organization, platform: "ios", osVersion: "18.1", deviceModel: "iPhone17,1",
        locale: "de_CH", attributes: attributes, attested: attested, reason: attested ? nil : "simulator")
}

func attribute(
    _ user: String, _ purchase: String, at stamp: Int64, organization: String = "demo",
    store: PurchaseStore = .appStore, facts: TransactionFacts? = nil, attested: Bool = false
) -> StampedWrite {
    SampleWrite.attribute(
        user, purchase, at: stamp, organization: organization, store: store, product: "raw.pro", facts: facts,
        attested: attested)
}

func facts(of purchase: String) -> TransactionFacts {
    SampleWrite.facts(
        purchase, of: purchase, signed: 1_795_900_001_000, purchased: 1_795_900_000_000, expires: 1_798_500_000_123)
}

/// A file with this text, for the caller to remove.
func temporaryFile(_ text: String) throws -> String {
    let path = FileManager.default.temporaryDirectory.appendingPathComponent("ratchet-\(UUID().uuidString)").path
    try Data(text.utf8).write(to: URL(fileURLWithPath: path))
    return path
}

func removeFile(_ path: String) { try? FileManager.default.removeItem(atPath: path) }
