package import Postgres

/// Writes that were dropped because their bundle belongs to no organization, or to several.
package struct UnresolvedBundle: Equatable, Sendable {
    package let bundleID: String
    package let dropped: Int64
    /// Microseconds since 1970.
    package let firstSeenAt: Int64
    package let lastSeenAt: Int64
    /// Organizations that have the bundle connected now: 0 is not connected, 2 or more is ambiguous, and 1 says that
    /// it was mended since.
    package let organizations: Int64

    package init(bundleID: String, dropped: Int64, firstSeenAt: Int64, lastSeenAt: Int64, organizations: Int64) {
        self.bundleID = bundleID
        self.dropped = dropped
        self.firstSeenAt = firstSeenAt
        self.lastSeenAt = lastSeenAt
        self.organizations = organizations
    }
}

package enum UnresolvedBundles {
    /// Bundles kept. Anybody may send any name, so the table must be bounded; a real app keeps sending, so the names
    /// seen least go first.
    package static let most = 1_000

    /// Adds counts. Not a join: a repeated call counts twice, so call it once per count taken.
    /// - Parameter counts: writes dropped since the last call, by bundle; names over 255 bytes are cut off the list.
    package static func add(
        _ counts: [String: Int64], nowMicroseconds: Int64, _ connection: PostgresConnection
    ) async throws(PostgresError) {
        let counts = counts.filter { (1...255).contains($0.key.utf8.count) && !$0.key.utf8.contains(0) && $0.value > 0 }
            .sorted { $0.key.utf8.lexicographicallyPrecedes($1.key.utf8) }
        guard !counts.isEmpty else { return }
        try await connection.transaction { () async throws(PostgresError) in
            _ = try await connection.query(
                """
                INSERT INTO unresolved_bundles AS u (bundle_id, dropped, first_seen, last_seen)
                SELECT bundle_id, dropped, $3, $3 FROM unnest($1::text[], $2::bigint[]) AS n(bundle_id, dropped)
                ON CONFLICT (bundle_id) DO UPDATE SET dropped = u.dropped + excluded.dropped,
                    first_seen = least(u.first_seen, excluded.first_seen),
                    last_seen = greatest(u.last_seen, excluded.last_seen)
                """,
                [.texts(counts.map(\.key)), .int64s(counts.map(\.value)), .int64(nowMicroseconds)])
            // Locked in order, so that two writers that trim at once don't deadlock.
            _ = try await connection.query(
                """
                DELETE FROM unresolved_bundles WHERE bundle_id IN (
                    SELECT bundle_id FROM unresolved_bundles WHERE bundle_id IN (
                        SELECT bundle_id FROM unresolved_bundles
                        ORDER BY dropped DESC, last_seen DESC, bundle_id OFFSET $1
                    ) ORDER BY bundle_id FOR UPDATE SKIP LOCKED)
                """, [.int64(Int64(most))])
        }
    }

    /// All kept, the most dropped first.
    package static func list(_ connection: PostgresConnection) async throws(PostgresError) -> [UnresolvedBundle] {
        let rows = try await connection.query(
            """
            SELECT u.*, (SELECT count(DISTINCT a.organization) FROM apps AS a WHERE a.bundle_id = u.bundle_id)
                AS organizations
            FROM unresolved_bundles AS u ORDER BY u.dropped DESC, u.bundle_id
            """
        ).rows
        var bundles: [UnresolvedBundle] = []
        for row in rows {
            bundles.append(
                UnresolvedBundle(
                    bundleID: try row.string("bundle_id"), dropped: try row.int64("dropped"),
                    firstSeenAt: try row.int64("first_seen"), lastSeenAt: try row.int64("last_seen"),
                    organizations: try row.int64("organizations")))
        }
        return bundles
    }
}
