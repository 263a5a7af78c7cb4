package import Postgres

/// Facts of an installation, such as the number of partitions.
package enum InstallationFacts {
    /// Nil when it was never set.
    package static func get(_ key: String, _ connection: PostgresConnection) async throws(PostgresError) -> String? {
        try await connection.query("SELECT value FROM settings WHERE key = $1", [.text(key)]).first?.string("value")
    }

    /// Sets a value unless one is set, and answers the one that holds: of two programs that start together, both get
    /// the first one's.
    package static func fix(
        _ key: String, _ value: String, _ connection: PostgresConnection
    ) async throws(PostgresError) -> String {
        _ = try await connection.query(
            "INSERT INTO settings (key, value) VALUES ($1, $2) ON CONFLICT (key) DO NOTHING",
            [.text(key), .text(value)])
        return try await get(key, connection) ?? value
    }

    /// Sets a value that changes, such as how far a task has got.
    package static func set(
        _ key: String, _ value: String, _ connection: PostgresConnection
    ) async throws(PostgresError) {
        _ = try await connection.query(
            "INSERT INTO settings (key, value) VALUES ($1, $2) ON CONFLICT (key) DO UPDATE SET value = excluded.value",
            [.text(key), .text(value)])
    }
}
