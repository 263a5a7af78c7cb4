package import Postgres

/// Device tokens that live no more, by the SHA-256 of their text: Redis and every ingress have to forget them. Hashes are
/// no one's to choose, so publishing looks at those of all organizations at once.
package enum EndedTokens {
    /// Most tokens of `recent`: an ended token costs two commands.
    private static let mostRecent = 10_000

    /// Notes that a token has ended. Part of the transaction that ends it.
    static func add(
        _ hash: [UInt8], organization: String, device: String, nowMicroseconds: Int64, _ connection: PostgresConnection
    ) async throws(PostgresError) {
        _ = try await connection.query(
            """
            INSERT INTO ended_tokens (token_hash, organization, device, ended_at) VALUES ($1, $2, $3, $4)
            ON CONFLICT DO NOTHING
            """, [.bytes(hash), .text(organization), .text(device), .int64(nowMicroseconds)])
    }

    /// Those that Redis may never have heard of, the oldest first.
    package static func unpublished(
        limit: Int, _ connection: PostgresConnection
    ) async throws(PostgresError) -> [[UInt8]] {
        try await hashes(
            "SELECT token_hash FROM ended_tokens WHERE NOT published ORDER BY ended_at LIMIT $1",
            [.int64(Int64(limit))], connection)
    }

    /// Those that ended lately, the last first: a Redis that was put back to an earlier state, or lost its newest writes in
    /// a failover, has to hear of them again.
    /// - Parameter since: microseconds since 1970.
    package static func recent(
        since: Int64, _ connection: PostgresConnection
    ) async throws(PostgresError) -> [[UInt8]] {
        try await hashes(
            "SELECT token_hash FROM ended_tokens WHERE ended_at >= $1 ORDER BY ended_at DESC LIMIT $2",
            [.int64(since), .int64(Int64(mostRecent))], connection)
    }

    /// Notes that Redis was told of them.
    package static func published(
        _ hashes: [[UInt8]], _ connection: PostgresConnection
    ) async throws(PostgresError) {
        guard !hashes.isEmpty else { return }
        var array = PostgresArray(of: .bytes, capacity: hashes.count)
        for hash in hashes { array.append(bytes: hash) }
        _ = try await connection.query(
            """
            UPDATE ended_tokens SET published = true WHERE token_hash IN (
                SELECT token_hash FROM ended_tokens WHERE token_hash = ANY ($1::bytea[]) AND NOT published
                ORDER BY token_hash FOR UPDATE)
            """, [array.parameter])
    }

    /// Drops those that were told and that nothing can remember any more.
    /// - Parameter before: microseconds since 1970.
    package static func forget(before: Int64, _ connection: PostgresConnection) async throws(PostgresError) {
        _ = try await connection.query(
            """
            DELETE FROM ended_tokens WHERE token_hash IN (
                SELECT token_hash FROM ended_tokens WHERE published AND ended_at < $1
                ORDER BY token_hash LIMIT 1000 FOR UPDATE SKIP LOCKED)
            """, [.int64(before)])
    }

    private static func hashes(
        _ sql: String, _ parameters: [PostgresParameter], _ connection: PostgresConnection
    ) async throws(PostgresError) -> [[UInt8]] {
        var hashes: [[UInt8]] = []
        for row in try await connection.query(sql, parameters).rows { hashes.append(try row.bytes("token_hash")) }
        return hashes
    }
}
