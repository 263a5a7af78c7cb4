internal import AppleAds
package import Postgres

/// How the sweep stands, for operators.
package struct AdServicesSweepStatus: Equatable, Sendable {
    package struct Pause: Equatable, Sendable {
        /// Microseconds since 1970.
        package let at: Int64
        /// When it ends by itself; nil until it is lifted.
        package let until: Int64?
        package let by: String
        package let reason: String
    }

    /// By hand; nil when there is none.
    package let pause: Pause?
    /// Until when no ask goes out because Apple asked for it or can't be reached; microseconds since 1970, nil when
    /// that is over.
    package let heldUntil: Int64?
    package let holdReason: String?
    /// Tokens that have not ended, all organizations'.
    package let pending: Int64
    /// Of them, those that could be asked about now.
    package let due: Int64
    /// Of them, those that a sweeper has in hand.
    package let asking: Int64
    /// When the one that waits longest became due; nil when none is due.
    package let oldestDueAt: Int64?
    /// When the next one becomes due; nil when none will.
    package let nextDueAt: Int64?
}

/// What operators order the sweep. It applies to all sweepers.
package enum AdServicesOperations {
    /// Reads all pending tokens.
    package static func status(
        nowMicroseconds: Int64, _ connection: PostgresConnection
    ) async throws(PostgresError) -> AdServicesSweepStatus {
        let row = try await connection.query(
            """
            SELECT s.*, t.* FROM (\(sweepSQL)) AS s, (
                SELECT count(*) AS pending, count(*) FILTER (WHERE due_at <= $1 AND NOT held) AS due,
                    count(*) FILTER (WHERE held) AS asking, min(due_at) FILTER (WHERE due_at <= $1 AND NOT held) AS oldest,
                    min(due_at) FILTER (WHERE due_at > $1 AND NOT held) AS next
                FROM (
                    SELECT due_at, coalesce(lease_end > $1, false) AS held FROM adservices_tokens
                    WHERE state = 'pending'
                ) AS pending
            ) AS t
            """, [.int64(nowMicroseconds)], deadlineMilliseconds: AdServicesTokens.longReadMilliseconds
        ).first
        guard let row else { throw PostgresError(.usage, "the sweep's row is missing") }
        let heldUntil = try row.int64("held_until")
        let isHeld = heldUntil > nowMicroseconds
        return AdServicesSweepStatus(
            pause: try standing(row), heldUntil: isHeld ? heldUntil : nil,
            holdReason: isHeld ? try row.optionalString("hold_reason") : nil, pending: try row.int64("pending"),
            due: try row.int64("due"), asking: try row.int64("asking"),
            oldestDueAt: try row.optionalInt64("oldest"), nextDueAt: try row.optionalInt64("next"))
    }

    /// Pauses end on Postgres' clock, which all sweepers go by.
    private static let nowSQL = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
    private static let sweepSQL =
        "SELECT *, coalesce(paused_until <= \(nowSQL), false) AS pause_is_over FROM adservices_sweep"

    private static func standing(_ row: PostgresRow) throws(PostgresError) -> AdServicesSweepStatus.Pause? {
        guard let at = try row.optionalInt64("paused_at"), !(try row.bool("pause_is_over")) else { return nil }
        return AdServicesSweepStatus.Pause(
            at: at, until: try row.optionalInt64("paused_until"), by: try row.optionalString("paused_by") ?? "",
            reason: try row.optionalString("pause_reason") ?? "")
    }

    /// The pause by hand alone, which costs nothing.
    package static func pause(
        _ connection: PostgresConnection
    ) async throws(PostgresError) -> AdServicesSweepStatus.Pause? {
        let row = try await connection.query(sweepSQL).first
        return try row.flatMap { row throws(PostgresError) in try standing(row) }
    }

    /// Pauses the sweep: nothing more is claimed, and what is claimed is asked to its end. A pause that stands is
    /// replaced.
    /// - Parameter milliseconds: how long; nil until it is lifted.
    /// - Returns: the one that stood.
    package static func pause(
        reason: String, milliseconds: Int64?, actor: String, nowMicroseconds: Int64, _ connection: PostgresConnection
    ) async throws(PostgresError) -> AdServicesSweepStatus.Pause? {
        try await change(
            AuditEntry(
                organization: nil, at: nowMicroseconds, actor: actor, action: "sweep.pause", subject: "adservices",
                detail: JSONText.object([("reason", reason), ("milliseconds", milliseconds.map { String($0) })])),
            at: nowMicroseconds, milliseconds: milliseconds, by: actor, reason: reason, connection)
    }

    /// Lifts the pause by hand. A hold that Apple asked for stays.
    /// - Returns: the pause that was lifted; nil when there was none, and nothing was done.
    package static func resume(
        actor: String, nowMicroseconds: Int64, _ connection: PostgresConnection
    ) async throws(PostgresError) -> AdServicesSweepStatus.Pause? {
        try await change(
            AuditEntry(
                organization: nil, at: nowMicroseconds, actor: actor, action: "sweep.resume", subject: "adservices"),
            at: nil, milliseconds: nil, by: nil, reason: nil, connection)
    }

    private static func change(
        _ entry: AuditEntry, at: Int64?, milliseconds: Int64?, by: String?, reason: String?,
        _ connection: PostgresConnection
    ) async throws(PostgresError) -> AdServicesSweepStatus.Pause? {
        try await connection.transaction { () async throws(PostgresError) -> AdServicesSweepStatus.Pause? in
            let row = try await connection.query("\(sweepSQL) FOR UPDATE").first
            let before = try row.flatMap { row throws(PostgresError) in try standing(row) }
            guard at != nil || before != nil else { return nil }
            _ = try await connection.query(
                """
                UPDATE adservices_sweep SET paused_at = $1, paused_by = $2, pause_reason = $3,
                    paused_until = \(nowSQL) + 1000 * $4
                """, [.int64(at), .text(by), .text(reason), .int64(milliseconds)])
            try await AuditLog.append(entry, connection)
            return before
        }
    }

    // MARK: - Run now

    /// Which tokens are asked about before their time.
    package struct RunFilter: Equatable, Sendable {
        package var organization: String?
        /// A bundle id, or an app's id.
        package var app: String?

        package init(organization: String? = nil, app: String? = nil) {
            self.organization = organization
            self.app = app
        }
    }

    /// What waits for its next rung. One that waits for its first ask has only seconds to go, one that a sweeper has in
    /// hand is being asked about, and one with no ask left waits for its end.
    private static let movable = """
        state = 'pending' AND due_at > $1 AND lease IS NULL AND asks > 0 AND attempts < \(AdServicesLadder.mostAttempts)
            AND ($2::text IS NULL OR organization = $2)
            AND ($3::text IS NULL OR bundle_id = $3
                OR bundle_id IN (SELECT a.bundle_id FROM apps AS a WHERE a.id = $3))
        """

    private static func parameters(_ filter: RunFilter, _ now: Int64) -> [PostgresParameter] {
        [.int64(now), .text(filter.organization), .text(filter.app)]
    }

    /// How many tokens a run would move.
    package static func matching(
        _ filter: RunFilter, nowMicroseconds: Int64, _ connection: PostgresConnection
    ) async throws(PostgresError) -> Int64 {
        try await connection.query(
            "SELECT count(*) AS tokens FROM adservices_tokens WHERE \(movable)", parameters(filter, nowMicroseconds),
            deadlineMilliseconds: AdServicesTokens.longReadMilliseconds
        ).first?.int64("tokens") ?? 0
    }

    /// Makes tokens due now, and notes in the audit log how many: a run that is stopped, or dies, has told of what it did
    /// and of no more.
    /// - Parameters:
    ///   - nowMicroseconds: the same for all calls of one run.
    ///   - after: 0 at first, then what the call before returned.
    ///   - limit: how many at the most; each call is one transaction.
    /// - Returns: how many were moved, and until which due time; nil when none is left.
    package static func run(
        _ filter: RunFilter, actor: String, nowMicroseconds: Int64, after: Int64, limit: Int,
        _ connection: PostgresConnection
    ) async throws(PostgresError) -> (moved: Int, until: Int64)? {
        try await connection.transaction { () async throws(PostgresError) -> (moved: Int, until: Int64)? in
            let row = try await connection.query(
                runSQL, parameters(filter, nowMicroseconds) + [.int64(after), .int64(Int64(limit))]
            ).first
            guard let row, let until = try row.optionalInt64("until") else { return nil }
            let moved = try row.int64("moved")
            try await AuditLog.append(
                AuditEntry(
                    organization: filter.organization, at: nowMicroseconds, actor: actor, action: "sweep.run-now",
                    subject: "adservices", detail: JSONText.object([("app", filter.app), ("moved", String(moved))])),
                connection)
            return (Int(moved), until)
        }
    }

    private static let runSQL = """
        WITH found AS (
            SELECT organization, bundle_id, subject_kind, subject, due_at FROM adservices_tokens
            WHERE \(movable) AND due_at >= $4 ORDER BY due_at LIMIT $5 FOR UPDATE SKIP LOCKED
        ), moved AS (
            UPDATE adservices_tokens AS t SET due_at = $1 FROM found AS f
            WHERE t.organization = f.organization AND t.bundle_id = f.bundle_id
                AND t.subject_kind = f.subject_kind AND t.subject = f.subject
            RETURNING f.due_at
        )
        SELECT count(*) AS moved, max(due_at) AS until FROM moved
        """
}
