import Postgres
import Store
import TestSupport
import Wire

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
    SampleWrite.identify(
        user, at: stamp, organization: organization, platform: platform, locale: locale, attributes: attributes,
        attested: attested, reason: reason)
}

func attribute(
    _ user: String, _ purchase: String, at stamp: Int64, organization: String = "o", store: PurchaseStore = .appStore,
    product: String? = nil, facts: TransactionFacts? = nil, attested: Bool = false
) -> StampedWrite {
    SampleWrite.attribute(
        user, purchase, at: stamp, organization: organization, store: store, product: product, facts: facts,
        attested: attested)
}
