internal import EventLoop
internal import Postgres
internal import RedisQueue
internal import Store
package import Wire

/// What operators can ask and order, whichever face they use. Every answer is of one organization unless it concerns
/// the installation as a whole, and every order leaves a row in the audit log.
package struct Administration: Sendable {
    package let installation: Installation
    /// Who acts, for the audit log: a login name.
    package let actor: String

    package init(installation: Installation, actor: String) {
        self.installation = installation
        self.actor = actor
    }

    var nowMicroseconds: Int64 { installation.loop.time.wallMicroseconds }

    // MARK: - Rules of what is typed

    /// - Throws: `.usage` unless the text can be an organization's id.
    static func checkOrganizationID(_ id: String) throws(OpsError) {
        guard OrganizationID(id) != nil else {
            throw OpsError(
                .usage, "\(quoted(id)) is no organization id: 1 to 63 of a-z, 0-9, _ and -, a letter or digit first")
        }
    }

    static func checkUserID(_ id: String) throws(OpsError) {
        guard TextRules.isUserID(id) else {
            throw OpsError(
                .usage, "\(quoted(id)) is no user id: 1 to 255 bytes, no control characters, not a word like null")
        }
    }

    static func checkBundleID(_ id: String) throws(OpsError) {
        guard TextRules.isBundleID(id) else {
            throw OpsError(
                .usage, "\(quoted(id)) is no bundle id: 1 to 255 of A-Z, a-z, 0-9, ., _ and -, a letter or digit first")
        }
    }

    static func checkOriginalTransactionID(_ id: String) throws(OpsError) {
        guard TextRules.isOriginalTransactionID(id) else {
            throw OpsError(
                .usage, "\(quoted(id)) is no originalTransactionId: 1 to 4096 bytes without white space")
        }
    }

    /// - Parameter name: nil for no store.
    /// - Throws: `.usage` for a store that there isn't.
    package static func store(named name: String?) throws(OpsError) -> PurchaseStore? {
        guard let name else { return nil }
        guard let store = PurchaseStore(rawValue: name) else {
            let known = PurchaseStore.allCases.map(\.rawValue).joined(separator: " or ")
            throw OpsError(.usage, "\(quoted(name)) is no store: it must be \(known)")
        }
        return store
    }

    static func quoted(_ text: String) -> String {
        let cut = text.unicodeScalars.count > 80
        return "'\(cut ? String(String.UnicodeScalarView(text.unicodeScalars.prefix(80))) + "…" : text)'"
    }

    /// Runs `body` once the organization is known to exist.
    /// - Throws: `.usage` for what can't be an id, `.notFound` for an unknown one.
    func inOrganization<Value: Sendable>(
        _ id: String, _ body: @escaping @Sendable (PostgresConnection) async throws -> Value
    ) async throws(OpsError) -> Value {
        try Self.checkOrganizationID(id)
        return try await installation.withPostgres { connection in
            guard try await Organizations.find(id: id, connection) != nil else {
                throw OpsError(.notFound, "no organization \(Self.quoted(id)); ratchet orgs list shows those there are")
            }
            return try await body(connection)
        }
    }
}
