package import Postgres

package struct OrganizationRecord: Equatable, Sendable {
    package let id: String
    package let name: String
    /// Microseconds since 1970.
    package let createdAt: Int64
    /// Attested writes a minute; nil takes the setting, 0 is no limit.
    package let attestedPerMinute: Int?
}

package enum Organizations {
    package enum CreateOutcome: Equatable, Sendable {
        case created(OrganizationRecord)
        /// One of that id was there before; nothing was changed.
        case exists(OrganizationRecord)
        /// The id is not `[a-z0-9][a-z0-9_-]{0,62}`, or the name not 1 to 255 bytes.
        case invalid(field: String)
    }

    /// Whether an id has the form `[a-z0-9][a-z0-9_-]{0,62}`.
    package static func isValidID(_ id: String) -> Bool {
        let bytes = Array(id.utf8)
        let plain: (UInt8) -> Bool = { (0x61...0x7a).contains($0) || (0x30...0x39).contains($0) }
        guard let first = bytes.first, bytes.count <= 63, plain(first) else { return false }
        return bytes.allSatisfy { plain($0) || $0 == 0x5f || $0 == 0x2d }
    }

    package static func create(
        id: String, name: String, actor: String, nowMicroseconds: Int64, _ connection: PostgresConnection
    ) async throws(PostgresError) -> CreateOutcome {
        guard isValidID(id) else { return .invalid(field: "id") }
        guard (1...255).contains(name.utf8.count), !name.utf8.contains(0) else { return .invalid(field: "name") }
        return try await connection.transaction { () async throws(PostgresError) in
            let created = try await connection.query(
                """
                INSERT INTO organizations (id, name, created_at) VALUES ($1, $2, $3)
                ON CONFLICT (id) DO NOTHING RETURNING *
                """, [.text(id), .text(name), .int64(nowMicroseconds)]
            ).first
            guard let created else {
                let row = try await connection.query("SELECT * FROM organizations WHERE id = $1", [.text(id)]).first
                guard let row else { throw PostgresError(.usage, "an organization vanished while it was created") }
                return .exists(try record(row))
            }
            try await AuditLog.append(
                AuditEntry(
                    organization: id, at: nowMicroseconds, actor: actor, action: "organization.create", subject: id,
                    detail: JSONText.object([("name", name)])), connection)
            return .created(try record(created))
        }
    }

    /// One of them; nil when there is none of that id.
    package static func find(
        id: String, _ connection: PostgresConnection
    ) async throws(PostgresError) -> OrganizationRecord? {
        guard let row = try await connection.query("SELECT * FROM organizations WHERE id = $1", [.text(id)]).first
        else { return nil }
        return try record(row)
    }

    /// All of them, by id.
    package static func list(_ connection: PostgresConnection) async throws(PostgresError) -> [OrganizationRecord] {
        var records: [OrganizationRecord] = []
        for row in try await connection.query("SELECT * FROM organizations ORDER BY id").rows {
            records.append(try record(row))
        }
        return records
    }

    /// Sets an organization's own limit of attested writes.
    /// - Parameter perMinute: 0 for no limit, nil for the setting's.
    /// - Returns: nil when there is none of that id.
    package static func setAttestedPerMinute(
        id: String, _ perMinute: Int?, actor: String, nowMicroseconds: Int64, _ connection: PostgresConnection
    ) async throws(PostgresError) -> OrganizationRecord? {
        try await connection.transaction { () async throws(PostgresError) -> OrganizationRecord? in
            let row = try await connection.query(
                "UPDATE organizations SET attested_per_minute = $2::bigint::integer WHERE id = $1 RETURNING *",
                [.text(id), .int64(perMinute.map { Int64($0) })]
            ).first
            guard let row else { return nil }
            try await AuditLog.append(
                AuditEntry(
                    organization: id, at: nowMicroseconds, actor: actor, action: "organization.limit", subject: id,
                    detail: JSONText.object([("attestedPerMinute", perMinute.map { String($0) })])), connection)
            return try record(row)
        }
    }

    private static func record(_ row: PostgresRow) throws(PostgresError) -> OrganizationRecord {
        OrganizationRecord(
            id: try row.string("id"), name: try row.string("name"), createdAt: try row.int64("created_at"),
            attestedPerMinute: try row.optionalInt64("attested_per_minute").map { Int($0) })
    }
}
