internal import Bytes
package import Postgres
package import Wire

package enum Purchases {
    /// How a move by hand ended.
    package enum MoveOutcome: Equatable, Sendable {
        /// - Parameters:
        ///   - from: the appUserId that owned the purchase before.
        ///   - stamp: of the new owner write, microseconds.
        case moved(from: String, stamp: Int64)
        case purchaseNotFound
        /// No write ever named that user: a slip of the hand, since a purchase moves between known users.
        case customerNotFound
    }

    private static let day: Int64 = 86_400_000_000
    private static let movesThatFlap: Int64 = 3

    /// The purchases that match `filter`, with $1 the organization and $2 the time 24 hours ago.
    private static func sql(where filter: String) -> String {
        """
        SELECT p.*, o.owner, o.contested,
            t.product_id, t.bundle_id, t.environment, t.ownership, t.purchased_at, t.expires_at, t.revoked_at,
            t.is_upgraded, t.app_account_token,
            (
                SELECT count(*) FROM purchase_moves AS m
                WHERE m.organization = p.organization AND m.store = p.store AND m.lineage = p.lineage
                    AND m.from_customer IS NOT NULL AND m.stamp > $2
            ) AS recent_moves
        FROM purchases AS p
        CROSS JOIN LATERAL (
            SELECT c.app_user_id AS owner, c.id,
                bool_or(w.customer <> l.customer AND (w.attested OR w.jws OR w.operator))
                AND NOT bool_or(w.customer = l.customer AND (w.attested OR w.jws OR w.operator)) AS contested
            FROM (
                SELECT customer FROM purchase_owner_writes
                WHERE organization = p.organization AND store = p.store AND lineage = p.lineage
                ORDER BY stamp DESC, customer DESC LIMIT 1
            ) AS l
            JOIN customers AS c ON c.organization = p.organization AND c.id = l.customer
            JOIN purchase_owner_writes AS w
                ON w.organization = p.organization AND w.store = p.store AND w.lineage = p.lineage
            GROUP BY c.app_user_id, c.id
        ) AS o
        LEFT JOIN LATERAL (
            SELECT * FROM transactions AS t
            WHERE t.organization = p.organization AND t.store = p.store AND t.lineage = p.lineage
            ORDER BY t.revoked_at IS NULL DESC, t.purchased_at DESC, t.expires_at DESC NULLS FIRST,
                t.transaction_key DESC
            LIMIT 1
        ) AS t ON true
        WHERE p.organization = $1 AND \(filter)
        ORDER BY p.first_seen, p.store, p.lineage
        """
    }

    private static let showSQL = sql(where: "p.lineage = $3 AND ($4::text IS NULL OR p.store = $4)")
    private static let listSQL = sql(
        where: """
            o.id = $3 AND (p.store, p.lineage) IN (
                SELECT store, lineage FROM purchase_owner_writes WHERE organization = $1 AND customer = $3)
            """)

    /// One purchase; nil when the organization has none of that id.
    /// - Parameter store: nil finds it in either store, the App Store first if both have it.
    package static func show(
        organization: String, originalTransactionID: String, store: PurchaseStore? = nil, nowMicroseconds: Int64,
        _ connection: PostgresConnection
    ) async throws(PostgresError) -> PurchaseRecord? {
        let lineage = SHA256Digest(of: Array(originalTransactionID.utf8)).bytes
        let rows = try await connection.query(
            showSQL,
            [.text(organization), .int64(nowMicroseconds - day), .bytes(lineage), .text(store?.rawValue)]
        ).rows
        let records = try records(rows)
        return records.first { $0.store == PurchaseStore.appStore.rawValue } ?? records.first
    }

    /// What a user owns now, the oldest first.
    package static func list(
        organization: String, appUserID: String, nowMicroseconds: Int64, _ connection: PostgresConnection
    ) async throws(PostgresError) -> [PurchaseRecord] {
        let customer = UUIDv8.customer(organization: organization, appUserID: appUserID)
        let rows = try await connection.query(
            listSQL, [.text(organization), .int64(nowMicroseconds - day), .uuid(customer.bytes)]
        ).rows
        return try records(rows)
    }

    /// The changes of owner, oldest first; the first link is the first of them.
    package static func history(
        of purchase: PurchaseRecord, _ connection: PostgresConnection
    ) async throws(PostgresError) -> [PurchaseMove] {
        let lineage = SHA256Digest(of: Array(purchase.originalTransactionID.utf8)).bytes
        let rows = try await connection.query(
            """
            SELECT f.app_user_id AS "from", t.app_user_id AS "to", m.stamp, m.attested, m.jws, m.operator, m.contested
            FROM purchase_moves AS m
            JOIN customers AS t ON t.organization = m.organization AND t.id = m.to_customer
            LEFT JOIN customers AS f ON f.organization = m.organization AND f.id = m.from_customer
            WHERE m.organization = $1 AND m.store = $2 AND m.lineage = $3
            ORDER BY m.stamp, m.to_customer
            """,
            [.text(purchase.organization), .text(purchase.store), .bytes(lineage)]
        ).rows
        var moves: [PurchaseMove] = []
        for row in rows {
            moves.append(
                PurchaseMove(
                    from: try row.optionalString("from"), to: try row.string("to"), at: try row.int64("stamp"),
                    attested: try row.bool("attested"), jws: try row.bool("jws"),
                    operator: try row.bool("operator"), contested: try row.bool("contested")))
        }
        return moves
    }

    /// Sets a purchase's owner by hand: an owner write with proof `operator`, later than every write there is, and a
    /// row in the audit log. A later write of the SDK moves it on, as always. Naming the present owner confirms it.
    /// - Parameter reason: in the operator's words, for the audit log.
    package static func move(
        organization: String, originalTransactionID: String, store: PurchaseStore? = nil, to appUserID: String,
        actor: String, reason: String? = nil, nowMicroseconds: Int64, _ connection: PostgresConnection
    ) async throws(PostgresError) -> MoveOutcome {
        let customer = UUIDv8.customer(organization: organization, appUserID: appUserID)
        return try await connection.transaction { () async throws(PostgresError) in
            guard
                let purchase = try await show(
                    organization: organization, originalTransactionID: originalTransactionID, store: store,
                    nowMicroseconds: nowMicroseconds, connection)
            else { return .purchaseNotFound }
            let known = try await connection.query(
                "SELECT FROM customers WHERE organization = $1 AND id = $2",
                [.text(organization), .uuid(customer.bytes)])
            guard known.count == 1 else { return .customerNotFound }
            let lineage = SHA256Digest(of: Array(originalTransactionID.utf8)).bytes
            let key: [PostgresParameter] = [.text(organization), .text(purchase.store), .bytes(lineage)]
            // Every writer takes this row's lock before it adds an owner write, so none slips in between.
            _ = try await connection.query(
                "SELECT FROM purchases WHERE organization = $1 AND store = $2 AND lineage = $3 FOR UPDATE", key)
            let written = try await connection.query(
                """
                INSERT INTO purchase_owner_writes (
                    organization, store, lineage, stamp, customer, attested, jws, operator)
                SELECT $1, $2, $3, greatest($5, max(stamp) + 1), $4, false, false, true FROM purchase_owner_writes
                WHERE organization = $1 AND store = $2 AND lineage = $3
                RETURNING stamp, (
                    SELECT c.app_user_id FROM purchase_owner_writes AS w
                    JOIN customers AS c ON c.organization = w.organization AND c.id = w.customer
                    WHERE w.organization = $1 AND w.store = $2 AND w.lineage = $3
                    ORDER BY w.stamp DESC, w.customer DESC LIMIT 1) AS before
                """, key + [.uuid(customer.bytes), .int64(nowMicroseconds)]
            ).first
            guard let written else { return .purchaseNotFound }
            let stamp = try written.int64("stamp")
            let from = try written.string("before")
            try await AuditLog.append(
                AuditEntry(
                    organization: organization, at: nowMicroseconds, actor: actor, action: "purchase.move",
                    subject: originalTransactionID,
                    detail: JSONText.object([
                        ("store", purchase.store), ("from", from), ("to", appUserID), ("reason", reason),
                    ])),
                connection)
            return .moved(from: from, stamp: stamp)
        }
    }

    private static func records(_ rows: [PostgresRow]) throws(PostgresError) -> [PurchaseRecord] {
        var records: [PurchaseRecord] = []
        for row in rows {
            let product = try row.optionalString("product_id")
            let bundle = try row.optionalString("bundle_id")
            let rawProduct = try row.optionalString("raw_product_id")
            let rawBundle = try row.optionalString("raw_bundle_id")
            records.append(
                PurchaseRecord(
                    organization: try row.string("organization"), store: try row.string("store"),
                    originalTransactionID: try row.string("original_transaction_id"),
                    owner: try row.string("owner"), productID: product ?? rawProduct, bundleID: bundle ?? rawBundle,
                    environment: try row.optionalString("environment"),
                    ownership: try row.optionalString("ownership"),
                    purchasedAt: try row.optionalInt64("purchased_at"),
                    expiresAt: try row.optionalInt64("expires_at"), revokedAt: try row.optionalInt64("revoked_at"),
                    isUpgraded: try row.optionalBool("is_upgraded"),
                    appAccountToken: try row.optionalString("app_account_token"),
                    attested: try row.bool("attested"), jwsVerified: try row.bool("jws_verified"),
                    contested: try row.bool("contested"),
                    flapping: try row.int64("recent_moves") >= movesThatFlap,
                    firstSeenAt: try row.int64("first_seen"), lastSeenAt: try row.int64("last_seen")))
        }
        return records
    }
}
