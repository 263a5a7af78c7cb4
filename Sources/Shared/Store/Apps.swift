internal import Bytes
package import Postgres
package import Wire

package struct AppRecord: Equatable, Sendable {
    /// `app_` and 24 lower-case hex characters.
    package let id: String
    package let organization: String
    package let store: PurchaseStore
    package let bundleID: String
    /// Ten of `A-Z0-9`; nil when the app was connected without one.
    package let teamID: String?
    /// Microseconds since 1970.
    package let createdAt: Int64
    /// Whether keys of App Attest's development environment may enrol.
    package let allowsDevelopment: Bool
}

package enum Apps {
    package enum ConnectOutcome: Equatable, Sendable {
        case connected(AppRecord)
        /// The very same app was connected before; nothing was changed.
        case exists(AppRecord)
        case organizationNotFound
        /// `bundleId` or `teamId` has not the form it must have.
        case invalid(field: String)
    }

    /// Whether a bundle id has the form `[A-Za-z0-9][A-Za-z0-9._-]{0,254}`.
    package static func isValidBundleID(_ id: String) -> Bool {
        let bytes = Array(id.utf8)
        guard let first = bytes.first, bytes.count <= 255, isAlphanumeric(first) else { return false }
        return bytes.allSatisfy { isAlphanumeric($0) || [0x2e, 0x5f, 0x2d].contains($0) }
    }

    private static func isAlphanumeric(_ byte: UInt8) -> Bool {
        (0x30...0x39).contains(byte) || (0x41...0x5a).contains(byte) || (0x61...0x7a).contains(byte)
    }

    private static func isValidTeamID(_ id: String) -> Bool {
        let bytes = Array(id.utf8)
        return bytes.count == 10 && bytes.allSatisfy { (0x30...0x39).contains($0) || (0x41...0x5a).contains($0) }
    }

    /// Connects an app to an organization. The directory's version rises with it.
    package static func connect(
        organization: String, store: PurchaseStore, bundleID: String, teamID: String?, actor: String,
        nowMicroseconds: Int64, _ connection: PostgresConnection
    ) async throws(PostgresError) -> ConnectOutcome {
        guard isValidBundleID(bundleID) else { return .invalid(field: "bundleId") }
        if let teamID, !isValidTeamID(teamID) { return .invalid(field: "teamId") }
        return try await connection.transaction { () async throws(PostgresError) in
            let known = try await connection.query(
                "SELECT FROM organizations WHERE id = $1 FOR SHARE", [.text(organization)])
            guard known.count == 1 else { return .organizationNotFound }
            let identity: [PostgresParameter] = [
                .text(organization), .text(store.rawValue), .text(bundleID), .text(teamID),
            ]
            let inserted = try await connection.query(
                """
                INSERT INTO apps (organization, store, bundle_id, team_id, id, created_at)
                VALUES ($1, $2, $3, $4, $5, $6)
                ON CONFLICT (organization, store, bundle_id, team_id) DO NOTHING RETURNING *
                """, identity + [.text("app_" + Hex.encode(Secrets.random(12))), .int64(nowMicroseconds)]
            ).first
            guard let inserted else {
                let row = try await connection.query(
                    """
                    SELECT * FROM apps WHERE organization = $1 AND store = $2 AND bundle_id = $3
                        AND team_id IS NOT DISTINCT FROM $4
                    """, identity
                ).first
                guard let row else { throw PostgresError(.usage, "an app vanished while it was connected") }
                return .exists(try record(row))
            }
            let app = try record(inserted)
            try await audit("app.connect", app, actor: actor, nowMicroseconds: nowMicroseconds, connection)
            return .connected(app)
        }
    }

    /// Disconnects the apps of an organization that have this id or this bundle id. What they wrote stays.
    /// - Parameter store: nil for both stores.
    /// - Returns: the apps that were disconnected; empty when none matched.
    package static func disconnect(
        organization: String, app: String, store: PurchaseStore? = nil, actor: String, nowMicroseconds: Int64,
        _ connection: PostgresConnection
    ) async throws(PostgresError) -> [AppRecord] {
        try await connection.transaction { () async throws(PostgresError) in
            let rows = try await connection.query(
                """
                DELETE FROM apps WHERE organization = $1 AND (id = $2 OR bundle_id = $2)
                    AND ($3::text IS NULL OR store = $3)
                RETURNING *
                """, [.text(organization), .text(app), .text(store?.rawValue)]
            ).rows
            var removed: [AppRecord] = []
            for row in rows {
                let app = try record(row)
                removed.append(app)
                try await audit("app.disconnect", app, actor: actor, nowMicroseconds: nowMicroseconds, connection)
            }
            return removed
        }
    }

    /// The apps of one organization, or of all, by organization, bundle and store.
    package static func list(
        organization: String?, _ connection: PostgresConnection
    ) async throws(PostgresError) -> [AppRecord] {
        var apps: [AppRecord] = []
        let rows = try await connection.query(
            """
            SELECT * FROM apps WHERE $1::text IS NULL OR organization = $1
            ORDER BY organization, bundle_id, store, team_id
            """, [.text(organization)]
        ).rows
        for row in rows { apps.append(try record(row)) }
        return apps
    }

    /// Says whether devices of an app that runs from Xcode may enrol.
    /// - Returns: the app as it is now; nil when the organization has none of that id.
    package static func setDevelopment(
        organization: String, app: String, allowed: Bool, actor: String, nowMicroseconds: Int64,
        _ connection: PostgresConnection
    ) async throws(PostgresError) -> AppRecord? {
        try await connection.transaction { () async throws(PostgresError) -> AppRecord? in
            let row = try await connection.query(
                "UPDATE apps SET attest_development = $3 WHERE organization = $1 AND id = $2 RETURNING *",
                [.text(organization), .text(app), .bool(allowed)]
            ).first
            guard let row else { return nil }
            let record = try record(row)
            try await AuditLog.append(
                AuditEntry(
                    organization: organization, at: nowMicroseconds, actor: actor, action: "app.attest_development",
                    subject: app, detail: JSONText.object([("allowed", allowed ? "true" : "false")])), connection)
            return record
        }
    }

    private static func audit(
        _ action: String, _ app: AppRecord, actor: String, nowMicroseconds: Int64, _ connection: PostgresConnection
    ) async throws(PostgresError) {
        try await AuditLog.append(
            AuditEntry(
                organization: app.organization, at: nowMicroseconds, actor: actor, action: action, subject: app.id,
                detail: JSONText.object([
                    ("store", app.store.rawValue), ("bundleId", app.bundleID), ("teamId", app.teamID),
                ])), connection)
    }

    static func record(_ row: PostgresRow) throws(PostgresError) -> AppRecord {
        guard let store = PurchaseStore(rawValue: try row.string("store")) else {
            throw PostgresError(.usage, "an app of an unknown store")
        }
        return AppRecord(
            id: try row.string("id"), organization: try row.string("organization"), store: store,
            bundleID: try row.string("bundle_id"), teamID: try row.optionalString("team_id"),
            createdAt: try row.int64("created_at"), allowsDevelopment: try row.bool("attest_development"))
    }
}
