package import Postgres

/// A job that will not run again by itself, as kept in Postgres.
package struct DeadLetterRecord: Equatable, Sendable {
    /// With `stamp`, the job's id.
    package let partition: Int64
    package let stamp: Int64
    package let organization: String
    package let lane: String
    package let kind: String
    /// The entry's two fields as they stood in the queue.
    package let header: [UInt8]
    package let payload: [UInt8]
    /// A fixed word, such as `poison` or `unsupported`.
    package let reason: String
    /// What went wrong, cut to 1,024 bytes.
    package let error: String
    /// Microseconds since 1970.
    package let diedAt: Int64

    package init(
        partition: Int64, stamp: Int64, organization: String, lane: String, kind: String, header: [UInt8],
        payload: [UInt8], reason: String, error: String, diedAt: Int64
    ) {
        self.partition = partition
        self.stamp = stamp
        self.organization = organization
        self.lane = lane
        self.kind = kind
        self.header = header
        self.payload = payload
        self.reason = reason
        self.error = error
        self.diedAt = diedAt
    }
}

package enum DeadLetters {
    private static let mostErrorBytes = 1_024

    /// Keeps letters; one that is there already stays as it is, so a repeated copy does nothing.
    /// - Returns: how many were new.
    package static func insert(
        _ letters: [DeadLetterRecord], _ connection: PostgresConnection
    ) async throws(PostgresError) -> Int {
        guard !letters.isEmpty else { return 0 }
        let letters = letters.sorted { ($0.partition, $0.stamp) < ($1.partition, $1.stamp) }
        var headers = PostgresArray(of: .bytes, capacity: letters.count)
        var payloads = PostgresArray(of: .bytes, capacity: letters.count)
        for letter in letters {
            headers.append(bytes: letter.header)
            payloads.append(bytes: letter.payload)
        }
        return try await connection.query(
            """
            INSERT INTO dead_letters (
                partition, stamp, organization, lane, kind, header, payload, reason, error, died_at)
            SELECT * FROM unnest(
                $1::bigint[], $2::bigint[], $3::text[], $4::text[], $5::text[], $6::bytea[], $7::bytea[],
                $8::text[], $9::text[], $10::bigint[])
            ON CONFLICT (partition, stamp) DO NOTHING
            """,
            [
                .int64s(letters.map(\.partition)), .int64s(letters.map(\.stamp)), .texts(letters.map(\.organization)),
                .texts(letters.map(\.lane)), .texts(letters.map(\.kind)), headers.parameter, payloads.parameter,
                .texts(letters.map(\.reason)), .texts(letters.map { cut($0.error) }),
                .int64s(letters.map(\.diedAt)),
            ]
        ).affectedRows
    }

    /// The latest letters of an organization, or of all, newest first.
    package static func list(
        organization: String?, limit: Int = 100, _ connection: PostgresConnection
    ) async throws(PostgresError) -> [DeadLetterRecord] {
        let rows = try await connection.query(
            """
            SELECT * FROM dead_letters WHERE $1::text IS NULL OR organization = $1
            ORDER BY died_at DESC, partition, stamp LIMIT $2
            """, [.text(organization), .int64(Int64(limit))]
        ).rows
        var letters: [DeadLetterRecord] = []
        for row in rows {
            letters.append(
                DeadLetterRecord(
                    partition: try row.int64("partition"), stamp: try row.int64("stamp"),
                    organization: try row.string("organization"), lane: try row.string("lane"),
                    kind: try row.string("kind"), header: try row.bytes("header"),
                    payload: try row.bytes("payload"), reason: try row.string("reason"),
                    error: try row.string("error"), diedAt: try row.int64("died_at")))
        }
        return letters
    }

    /// The longest head of whole characters that fits, without the NUL that Postgres can't hold: an error text may
    /// quote anything, and it must not make its letter undeliverable.
    private static func cut(_ text: String) -> String {
        var kept = String.UnicodeScalarView()
        var bytes = 0
        for scalar in text.unicodeScalars where scalar.value != 0 {
            bytes += UTF8.width(scalar)
            if bytes > mostErrorBytes { break }
            kept.append(scalar)
        }
        return String(kept)
    }
}
