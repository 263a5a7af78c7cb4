package import Postgres

/// All connected apps at one version: what the writer publishes for the ingress.
package struct DirectorySnapshot: Equatable, Sendable {
    /// Rises with every change of apps or organizations, in the same commit; never falls.
    package let version: Int64
    /// By bundle, organization, store and team.
    package let apps: [AppRecord]
    /// Attested writes a minute of the organizations that have a number of their own.
    package let attestedPerMinute: [String: Int]

    /// The version alone: one small row, cheap enough to ask for several times a second.
    package static func version(_ connection: PostgresConnection) async throws(PostgresError) -> Int64 {
        guard let row = try await connection.query("SELECT version FROM app_directory").first else {
            throw PostgresError(.usage, "the app directory has no version")
        }
        return try row.int64("version")
    }

    /// Version and apps of one moment.
    package static func load(_ connection: PostgresConnection) async throws(PostgresError) -> DirectorySnapshot {
        // One statement sees one snapshot, so the version belongs to the apps beside it.
        let rows = try await connection.query(
            """
            SELECT d.version, o.attested_per_minute, a.* FROM app_directory AS d
            LEFT JOIN apps AS a ON true LEFT JOIN organizations AS o ON o.id = a.organization
            ORDER BY a.bundle_id, a.organization, a.store, a.team_id
            """
        ).rows
        guard let first = rows.first else { throw PostgresError(.usage, "the app directory has no version") }
        var apps: [AppRecord] = []
        var limits: [String: Int] = [:]
        for row in rows where try row.optionalString("id") != nil {
            let app = try Apps.record(row)
            apps.append(app)
            if let limit = try row.optionalInt64("attested_per_minute") { limits[app.organization] = Int(limit) }
        }
        return DirectorySnapshot(
            version: try first.int64("version"), apps: apps, attestedPerMinute: limits)
    }
}
