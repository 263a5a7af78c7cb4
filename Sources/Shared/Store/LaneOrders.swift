package import Postgres

/// An order to the queue that stands until it is lifted or runs out.
package struct LaneOrderRecord: Equatable, Sendable {
    /// `lane`, `kind` or `organization`.
    package let scope: String
    /// Which one of them.
    package let target: String
    /// `pause` or `drain`.
    package let action: String
    package let owner: String
    package let reason: String
    /// Microseconds since 1970; nil stands until lifted.
    package let until: Int64?
    package let createdAt: Int64

    package init(
        scope: String, target: String, action: String, owner: String, reason: String, until: Int64?, createdAt: Int64
    ) {
        self.scope = scope
        self.target = target
        self.action = action
        self.owner = owner
        self.reason = reason
        self.until = until
        self.createdAt = createdAt
    }
}

package enum LaneOrders {
    /// Stores an order; one of the same scope, target and action is replaced.
    package static func put(_ order: LaneOrderRecord, _ connection: PostgresConnection) async throws(PostgresError) {
        _ = try await connection.query(
            """
            INSERT INTO lane_orders (scope, target, action, owner, reason, until_at, created_at)
            VALUES ($1, $2, $3, $4, $5, $6, $7)
            ON CONFLICT (scope, target, action) DO UPDATE SET owner = excluded.owner, reason = excluded.reason,
                until_at = excluded.until_at, created_at = excluded.created_at
            """,
            [
                .text(order.scope), .text(order.target), .text(order.action), .text(order.owner), .text(order.reason),
                .int64(order.until), .int64(order.createdAt),
            ])
    }

    /// - Parameter microseconds: leaves an order that was given later.
    /// - Returns: whether there was one.
    package static func remove(
        scope: String, target: String, action: String, givenUntil microseconds: Int64 = .max,
        _ connection: PostgresConnection
    ) async throws(PostgresError) -> Bool {
        try await connection.query(
            "DELETE FROM lane_orders WHERE scope = $1 AND target = $2 AND action = $3 AND created_at <= $4",
            [.text(scope), .text(target), .text(action), .int64(microseconds)]
        ).affectedRows > 0
    }

    /// Copies a change of the orders that was made in the queue, with its row in the audit log: once, however many
    /// processes copy it, so that a slow one brings back nothing.
    /// - Parameters:
    ///   - lifted: the order was lifted, by its `owner` at `createdAt`.
    ///   - stood: false for a lifting of what the queue did not have. Where nothing stands here either, nothing was lifted,
    ///     and the audit log gets no row; without one it may be copied late, and leaves what was given after it.
    ///   - id: of the change, never given twice.
    package static func copy(
        _ order: LaneOrderRecord, lifted: Bool, stood: Bool = true, id: String, _ connection: PostgresConnection
    ) async throws(PostgresError) {
        let organization = order.scope == "organization" ? order.target : nil
        var detail: [(String, String?)] = [("change", id)]
        if lifted {
            detail.append(("lifted", order.action))
        } else {
            detail += [("reason", order.reason), ("untilMicroseconds", order.until.map { String($0) })]
        }
        let entry = AuditEntry(
            organization: organization, at: order.createdAt, actor: order.owner,
            action: lifted ? "queue.resume" : "queue.\(order.action)", subject: "\(order.scope):\(order.target)",
            detail: JSONText.object(detail))
        try await connection.transaction { () async throws(PostgresError) in
            _ = try await connection.query(
                "SELECT pg_advisory_xact_lock(hashtextextended('ratchet.orders.' || current_schema(), 0))", [])
            let copied = try await connection.query(
                """
                SELECT FROM audit_log WHERE organization IS NOT DISTINCT FROM $1 AND at = $2 AND action = $3
                    AND detail->>'change' = $4
                """, [.text(organization), .int64(entry.at), .text(entry.action), .text(id)]
            ).count
            guard copied == 0 else { return }
            if lifted {
                let went = try await remove(
                    scope: order.scope, target: order.target, action: order.action,
                    givenUntil: stood ? .max : order.createdAt, connection)
                guard went || stood else { return }
            } else {
                try await put(order, connection)
            }
            try await AuditLog.append(entry, connection)
        }
    }

    /// The orders that stand at a time.
    package static func list(
        nowMicroseconds: Int64, _ connection: PostgresConnection
    ) async throws(PostgresError) -> [LaneOrderRecord] {
        let rows = try await connection.query(
            """
            SELECT * FROM lane_orders WHERE until_at IS NULL OR until_at > $1 ORDER BY scope, target, action
            """, [.int64(nowMicroseconds)]
        ).rows
        var orders: [LaneOrderRecord] = []
        for row in rows {
            orders.append(
                LaneOrderRecord(
                    scope: try row.string("scope"), target: try row.string("target"),
                    action: try row.string("action"), owner: try row.string("owner"),
                    reason: try row.string("reason"), until: try row.optionalInt64("until_at"),
                    createdAt: try row.int64("created_at")))
        }
        return orders
    }
}
