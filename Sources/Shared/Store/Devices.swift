package import Postgres
package import Wire

/// A device that enrolled with App Attest.
package struct DeviceRecord: Equatable, Sendable {
    /// `dev_` and 24 hex.
    package let id: String
    package let organization: String
    /// The app's id; the app may be disconnected by now.
    package let app: String
    package let bundleID: String
    /// `production` or `development`.
    package let environment: String
    /// As Apple said at the enrolment, from iOS 27 on.
    package let bundleVersion: String?
    package let validationCategory: String?
    /// Microseconds since 1970.
    package let enrolledAt: Int64
    /// The hour of its latest write, microseconds since 1970; at first the time of its enrolment.
    package let lastSeenAt: Int64
    package let revokedAt: Int64?

    fileprivate init(_ row: PostgresRow) throws(PostgresError) {
        id = try row.string("id")
        organization = try row.string("organization")
        app = try row.string("app")
        bundleID = try row.string("bundle_id")
        environment = try row.string("environment")
        bundleVersion = try row.optionalString("bundle_version")
        validationCategory = try row.optionalString("validation_category")
        enrolledAt = try row.int64("enrolled_at")
        lastSeenAt = try row.int64("last_seen_at")
        revokedAt = try row.optionalInt64("revoked_at")
    }
}

package enum Devices {
    /// What became of an enrolment in the store.
    package enum EnrolOutcome: Equatable, Sendable {
        /// The device is there with this token. `replaced` is the hash of an earlier one, which lives no more.
        case enrolled(id: String, replaced: [UInt8]?)
        /// The key enrolled before, by another call or too long ago, or was revoked.
        case alreadyEnrolled
        /// An equal call with a later stamp set the token already.
        case superseded
    }

    /// Enrols a device, or finds it enrolled by the same call: safe to repeat. The key is held, so that of several
    /// writers one decides after the other.
    /// - Parameter stamp: of the job, microseconds since 1970.
    package static func enrol(
        _ enrolment: Enrolment, _ key: Enrolment.DeviceKey, stamp: Int64, _ connection: PostgresConnection
    ) async throws(PostgresError) -> EnrolOutcome {
        let organization = key.organization
        let id = Enrolment.deviceID(organization: organization, keyID: enrolment.keyID)
        return try await connection.transaction { () async throws(PostgresError) in
            let inserted = try await connection.query(
                """
                INSERT INTO devices (
                    id, organization, app, bundle_id, key_id, public_key, environment, receipt, bundle_version,
                    validation_category, call_digest, token_hash, token_stamp, enrolled_at, last_seen_at)
                VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $13, $13)
                ON CONFLICT DO NOTHING RETURNING id
                """,
                [
                    .text(id), .text(organization), .text(key.appID), .text(enrolment.bundleID),
                    .bytes(enrolment.keyID), .bytes(key.publicKey), .text(key.environment), .bytes(key.receipt),
                    .text(key.bundleVersion), .text(key.validationCategory), .bytes(enrolment.callDigest),
                    .bytes(enrolment.tokenHash), .int64(stamp),
                ]
            ).first
            if inserted != nil { return .enrolled(id: id, replaced: nil) }
            return try await again(enrolment, organization: organization, stamp: stamp, connection)
        }
    }

    private static func again(
        _ enrolment: Enrolment, organization: String, stamp: Int64, _ connection: PostgresConnection
    ) async throws(PostgresError) -> EnrolOutcome {
        // A key of another organization's device is as taken as one of this one's.
        let row = try await connection.query(
            "SELECT * FROM devices WHERE key_id = $1 FOR UPDATE", [.bytes(enrolment.keyID)]
        ).first
        guard let row else { return .alreadyEnrolled }
        let id = try row.string("id")
        let enrolledAt = try row.int64("enrolled_at")
        guard try row.string("organization").utf8.elementsEqual(organization.utf8),
            try row.bytes("call_digest") == enrolment.callDigest, try row.optionalInt64("revoked_at") == nil,
            stamp - enrolledAt <= Enrolment.repeatMicroseconds
        else { return .alreadyEnrolled }
        let stands = try row.bytes("token_hash")
        if stands == enrolment.tokenHash { return .enrolled(id: id, replaced: nil) }
        guard stamp > (try row.int64("token_stamp")) else { return .superseded }
        _ = try await connection.query(
            "UPDATE devices SET token_hash = $3, token_stamp = $4 WHERE organization = $1 AND id = $2",
            [.text(organization), .text(id), .bytes(enrolment.tokenHash), .int64(stamp)])
        // In the same transaction: whoever dies now, another writer tells that the old token is over.
        try await EndedTokens.add(
            stands, organization: organization, device: id, nowMicroseconds: stamp, connection)
        return .enrolled(id: id, replaced: stands)
    }

    /// Whose tokens are, by the SHA-256 of their text; those that are nobody's, of revoked devices or of disconnected
    /// apps are left out. The one question that names no organization: the token is what says which.
    package static func facts(
        tokenHashes: [[UInt8]], _ connection: PostgresConnection
    ) async throws(PostgresError) -> [[UInt8]: DeviceFacts] {
        var hashes = PostgresArray(of: .bytes, capacity: tokenHashes.count)
        for hash in tokenHashes { hashes.append(bytes: hash) }
        let rows = try await connection.query(
            """
            SELECT d.token_hash, d.organization, d.app, d.id FROM devices AS d
            JOIN apps AS a ON a.id = d.app AND a.organization = d.organization
            WHERE d.token_hash = ANY ($1::bytea[]) AND d.revoked_at IS NULL
            """, [hashes.parameter]
        ).rows
        var facts: [[UInt8]: DeviceFacts] = [:]
        for row in rows {
            facts[try row.bytes("token_hash")] = DeviceFacts(
                organization: try row.string("organization"), appID: try row.string("app"),
                deviceID: try row.string("id"))
        }
        return facts
    }

    /// Devices of an organization, the latest enrolment first.
    /// - Parameters:
    ///   - app: an app's id or a bundle id; nil for all.
    ///   - limit: 1 or more.
    package static func list(
        organization: String, app: String? = nil, revoked: Bool? = nil, limit: Int = 100,
        _ connection: PostgresConnection
    ) async throws(PostgresError) -> [DeviceRecord] {
        let rows = try await connection.query(
            """
            SELECT * FROM devices WHERE organization = $1 AND ($2::text IS NULL OR app = $2 OR bundle_id = $2)
                AND ($3::boolean IS NULL OR (revoked_at IS NOT NULL) = $3)
            ORDER BY enrolled_at DESC, id LIMIT $4
            """, [.text(organization), .text(app), .bool(revoked), .int64(Int64(limit))]
        ).rows
        var devices: [DeviceRecord] = []
        for row in rows { devices.append(try DeviceRecord(row)) }
        return devices
    }

    /// One of them; nil when the organization has none of that id.
    package static func find(
        organization: String, id: String, _ connection: PostgresConnection
    ) async throws(PostgresError) -> DeviceRecord? {
        let row = try await connection.query(
            "SELECT * FROM devices WHERE organization = $1 AND id = $2", [.text(organization), .text(id)]
        ).first
        return try row.map { row throws(PostgresError) in try DeviceRecord(row) }
    }

    /// A device that was revoked, and the token to make known.
    package struct Revocation: Equatable, Sendable {
        package let device: DeviceRecord
        /// SHA-256 of the token.
        package let tokenHash: [UInt8]
        /// False when it had been revoked before.
        package let isNew: Bool
    }

    /// Ends a device's token for good. The first revocation's time stays.
    /// - Returns: nil when the organization has no device of that id.
    package static func revoke(
        organization: String, id: String, actor: String, nowMicroseconds: Int64, _ connection: PostgresConnection
    ) async throws(PostgresError) -> Revocation? {
        try await connection.transaction { () async throws(PostgresError) -> Revocation? in
            let before = try await connection.query(
                "SELECT revoked_at FROM devices WHERE organization = $1 AND id = $2 FOR UPDATE",
                [.text(organization), .text(id)]
            ).first
            guard let before else { return nil }
            let isNew = try before.optionalInt64("revoked_at") == nil
            let row = try await connection.query(
                """
                UPDATE devices SET revoked_at = least(revoked_at, $3)
                WHERE organization = $1 AND id = $2 RETURNING *
                """, [.text(organization), .text(id), .int64(nowMicroseconds)]
            ).first
            guard let row else { return nil }
            let tokenHash = try row.bytes("token_hash")
            if isNew {
                try await EndedTokens.add(
                    tokenHash, organization: organization, device: id, nowMicroseconds: nowMicroseconds, connection)
                try await AuditLog.append(
                    AuditEntry(
                        organization: organization, at: nowMicroseconds, actor: actor, action: "device.revoke",
                        subject: id), connection)
            }
            return Revocation(device: try DeviceRecord(row), tokenHash: tokenHash, isNew: isNew)
        }
    }
}
