package import Postgres

/// One change made by hand.
package struct AuditEntry: Equatable, Sendable {
    /// Nil for what concerns the whole installation.
    package let organization: String?
    /// Microseconds since 1970.
    package let at: Int64
    /// Who: a user name, a key's id.
    package let actor: String
    /// What, such as `purchase.move`.
    package let action: String
    /// On what: an id.
    package let subject: String
    /// A JSON object: before, after and whatever else explains it.
    package let detail: String

    package init(
        organization: String?, at: Int64, actor: String, action: String, subject: String, detail: String = "{}"
    ) {
        self.organization = organization
        self.at = at
        self.actor = actor
        self.action = action
        self.subject = subject
        self.detail = detail
    }
}

package enum AuditLog {
    /// Adds an entry, in the caller's transaction if one is open: what is audited and its audit row stand or fall
    /// together.
    package static func append(_ entry: AuditEntry, _ connection: PostgresConnection) async throws(PostgresError) {
        _ = try await connection.query(
            "INSERT INTO audit_log (organization, at, actor, action, subject, detail) VALUES ($1, $2, $3, $4, $5, $6)",
            [
                .text(entry.organization), .int64(entry.at), .text(entry.actor), .text(entry.action),
                .text(entry.subject), .jsonb(entry.detail),
            ])
    }

    /// The latest entries of an organization, or of the whole installation, newest first.
    package static func list(
        organization: String?, limit: Int = 100, _ connection: PostgresConnection
    ) async throws(PostgresError) -> [AuditEntry] {
        try entries(
            await connection.query(
                "SELECT * FROM audit_log WHERE organization IS NOT DISTINCT FROM $1 ORDER BY id DESC LIMIT $2",
                [.text(organization), .int64(Int64(limit))]))
    }

    /// The latest entries of all organizations and of the installation together, newest first.
    package static func latest(
        limit: Int, _ connection: PostgresConnection
    ) async throws(PostgresError) -> [AuditEntry] {
        try entries(
            await connection.query("SELECT * FROM audit_log ORDER BY id DESC LIMIT $1", [.int64(Int64(limit))]))
    }

    private static func entries(_ result: PostgresResult) throws(PostgresError) -> [AuditEntry] {
        var entries: [AuditEntry] = []
        for row in result.rows {
            entries.append(
                AuditEntry(
                    organization: try row.optionalString("organization"), at: try row.int64("at"),
                    actor: try row.string("actor"), action: try row.string("action"),
                    subject: try row.string("subject"), detail: try row.string("detail")))
        }
        return entries
    }
}
