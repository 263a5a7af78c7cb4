import EventLoop
import Foundation
import Postgres
import Store
import TestSupport
import Wire

/// A migrated schema of its own on the shared server.
struct TestStore: Sendable {
    let schema: String

    static func make() async throws -> TestStore {
        let store = TestStore(schema: try TestPostgres.shared.get().schema())
        _ = try await store.withConnection { connection in try await Migrator.migrate(connection) }
        return store
    }

    /// Runs a body with a connection and a loop of its own.
    func withConnection<Value: Sendable>(
        _ body: @escaping @Sendable (PostgresConnection) async throws -> Value
    ) async throws -> Value {
        let configuration = try TestPostgres.shared.get().configuration(schema: schema)
        let loop = EventLoop(name: "store-test")
        defer { loop.stop() }
        return try await loop.run {
            let connection = try await PostgresConnection.connect(configuration, on: loop)
            defer { connection.close() }
            return try await body(connection)
        }
    }
}

/// A migrated schema and one connection to it.
func withStore<Value: Sendable>(
    _ body: @escaping @Sendable (PostgresConnection) async throws -> Value
) async throws -> Value {
    try await TestStore.make().withConnection(body)
}

/// The error that an async call ends with, or nil.
func failure<Failure: Error>(of body: () async throws(Failure) -> Void) async -> Failure? {
    do throws(Failure) {
        try await body()
        return nil
    } catch {
        return error
    }
}

extension PostgresConnection {
    func count(_ sql: String) async throws -> Int64 {
        try await query("SELECT count(*) AS n FROM \(sql)").first?.int64("n") ?? -1
    }
}

/// Writes in few words. All belong to organization `o` unless said otherwise.
func identify(
    _ user: String, at stamp: Int64, organization: String = "o", platform: String? = nil,
    attributes: [(String, String?)] = [], attested: Bool = false, locale: String? = nil, reason: String? = nil
) -> StampedWrite {
    StampedWrite(
        organization: organization, stamp: stamp,
        content: .identify(
            IdentifyWrite(
                appUserID: user, bundleID: "com.example.app", platform: platform, locale: locale,
                attributes: attributes.map { .init(key: $0.0, value: $0.1) },
                proof: WriteProof(attested: attested, unattestedReason: reason))))
}

func attribute(
    _ user: String, _ purchase: String, at stamp: Int64, organization: String = "o", store: PurchaseStore = .appStore,
    product: String? = nil, facts: TransactionFacts? = nil, attested: Bool = false
) -> StampedWrite {
    StampedWrite(
        organization: organization, stamp: stamp,
        content: .attribute(
            AttributeWrite(
                appUserID: user, bundleID: "com.example.app", store: store, originalTransactionID: purchase,
                productID: product, evidence: facts.map { .verified($0) } ?? .none,
                proof: WriteProof(attested: attested))))
}

func facts(
    _ transaction: String, of purchase: String, signed: Int64 = 1_000, product: String = "com.example.pro",
    purchased: Int64 = 500, expires: Int64? = nil, revoked: Int64? = nil, ownership: String? = "PURCHASED",
    digest: String = "00"
) -> TransactionFacts {
    TransactionFacts(
        transactionID: transaction, originalTransactionID: purchase, bundleID: "com.example.app", productID: product,
        environment: "Production", purchaseDate: purchased, expiresDate: expires, signedDate: signed,
        ownership: ownership, revocationDate: revoked, payloadDigest: digest)
}
