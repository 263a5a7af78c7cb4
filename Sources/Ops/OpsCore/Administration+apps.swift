internal import Postgres
package import Store
package import Wire

extension Administration {
    /// What became of the wish for an organization.
    package struct Creation: Equatable, Sendable {
        package let organization: OrganizationRecord
        /// False when it was there before; then nothing was changed.
        package let created: Bool
    }

    /// Creates an organization unless it is there.
    /// - Parameter name: for people; the id when nil.
    package func createOrganization(
        id: String, name: String?
    ) async throws(OpsError) -> Creation {
        try Self.checkOrganizationID(id)
        let outcome = try await installation.withPostgres { connection in
            try await Organizations.create(
                id: id, name: name ?? id, actor: actor, nowMicroseconds: nowMicroseconds, connection)
        }
        switch outcome {
        case .created(let record): return Creation(organization: record, created: true)
        case .exists(let record): return Creation(organization: record, created: false)
        case .invalid(let field): throw OpsError(.usage, "the \(field) must have 1 to 255 bytes")
        }
    }

    /// All organizations, by id.
    package func organizations() async throws(OpsError) -> [OrganizationRecord] {
        try await installation.withPostgres { connection in try await Organizations.list(connection) }
    }

    package struct Connection: Equatable, Sendable {
        package let app: AppRecord
        /// False when it was connected before; then nothing was changed.
        package let created: Bool
        /// Other organizations with the same bundle: as long as there are any, writes that name it are dropped, for
        /// nobody can tell whose they are.
        package let others: [String]
    }

    /// Connects an app unless it is connected. Every ingress knows it within a second.
    /// - Parameter store: nil is the App Store.
    package func connectApp(
        bundleID: String, organization: String, team: String?, store: PurchaseStore?
    ) async throws(OpsError) -> Connection {
        try Self.checkBundleID(bundleID)
        return try await inOrganization(organization) { connection in
            let outcome = try await Apps.connect(
                organization: organization, store: store ?? .appStore, bundleID: bundleID, teamID: team, actor: actor,
                nowMicroseconds: nowMicroseconds, connection)
            let others = Set(
                try await Apps.list(organization: nil, connection)
                    .filter { $0.bundleID.utf8.elementsEqual(bundleID.utf8) && $0.organization != organization }
                    .map(\.organization)
            ).sorted()
            switch outcome {
            case .connected(let app): return Connection(app: app, created: true, others: others)
            case .exists(let app): return Connection(app: app, created: false, others: others)
            case .organizationNotFound:
                throw OpsError(.notFound, "the organization \(Self.quoted(organization)) was removed meanwhile")
            case .invalid:
                throw OpsError(.usage, "\(Self.quoted(team ?? "")) is no team id: ten of A-Z and 0-9")
            }
        }
    }

    /// Disconnects the apps with a bundle id (or an app id). What they wrote stays.
    /// - Parameter store: nil for both stores.
    /// - Throws: `.notFound` when there is none.
    package func disconnectApp(
        bundleID: String, organization: String, store: PurchaseStore?
    ) async throws(OpsError) -> [AppRecord] {
        try Self.checkBundleID(bundleID)
        return try await inOrganization(organization) { connection in
            let removed = try await Apps.disconnect(
                organization: organization, app: bundleID, store: store, actor: actor,
                nowMicroseconds: nowMicroseconds, connection)
            guard !removed.isEmpty else {
                let place = store.map { " in \($0.rawValue)" } ?? ""
                throw OpsError(
                    .notFound, "\(organization) has no connected app \(Self.quoted(bundleID))\(place)")
            }
            return removed
        }
    }

    /// The apps of one organization, or of all.
    package func apps(organization: String?) async throws(OpsError) -> [AppRecord] {
        guard let organization else {
            return try await installation.withPostgres { connection in
                try await Apps.list(organization: nil, connection)
            }
        }
        return try await inOrganization(organization) { connection in
            try await Apps.list(organization: organization, connection)
        }
    }

    /// Bundles whose writes were dropped, the most dropped first. They belong to no organization.
    package func unresolvedBundles() async throws(OpsError) -> [UnresolvedBundle] {
        try await installation.withPostgres { connection in try await UnresolvedBundles.list(connection) }
    }
}
