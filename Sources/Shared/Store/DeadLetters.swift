package import Postgres

/// A job that will not run again by itself, as kept in Postgres.
package struct DeadLetterRecord: Equatable, Sendable {
    package enum State: String, Sendable {
        /// Waits for somebody to decide.
        case dead
        /// Was put back into its lane. If it died again, that is another letter.
        case retried
        /// Was thrown away by hand; its payload is gone.
        case purged
    }

    /// What operators call it; 0 before it is stored.
    package let id: Int64
    /// With `stamp`, the job's id.
    package let partition: Int64
    /// 0 when the entry had no readable header.
    package let stamp: Int64
    package let organization: String
    package let lane: String
    package let kind: String
    /// The letter's entry in the stream of dead letters.
    package let entry: String
    /// The entry's two fields as they stood in the queue.
    package let header: [UInt8]
    /// Empty in lists.
    package let payload: [UInt8]
    package let payloadBytes: Int64
    /// A fixed word, such as `poison` or `unsupported`.
    package let reason: String
    /// What went wrong, cut to 1,024 bytes.
    package let error: String
    /// Microseconds since 1970.
    package let diedAt: Int64
    package let state: State
    /// When it was retried or purged, microseconds since 1970.
    package let changedAt: Int64?

    /// A letter that is not stored yet.
    package init(
        partition: Int64, stamp: Int64, organization: String, lane: String, kind: String, entry: String = "",
        header: [UInt8], payload: [UInt8], reason: String, error: String, diedAt: Int64
    ) {
        id = 0
        self.partition = partition
        self.stamp = stamp
        self.organization = organization
        self.lane = lane
        self.kind = kind
        self.entry = entry
        self.header = header
        self.payload = payload
        payloadBytes = Int64(payload.count)
        self.reason = reason
        self.error = error
        self.diedAt = diedAt
        state = .dead
        changedAt = nil
    }

    fileprivate init(_ row: PostgresRow) throws(PostgresError) {
        id = try row.int64("id")
        partition = try row.int64("partition")
        stamp = try row.int64("stamp")
        organization = try row.string("organization")
        lane = try row.string("lane")
        kind = try row.string("kind")
        entry = try row.string("entry")
        header = try row.bytes("header")
        payload = try row.bytes("payload")
        payloadBytes = try row.int64("payload_bytes")
        reason = try row.string("reason")
        error = try row.string("error")
        diedAt = try row.int64("died_at")
        state = State(rawValue: try row.string("state")) ?? .dead
        changedAt = try row.optionalInt64("changed_at")
    }
}

/// Which letters are meant: those that fit everything that is not nil.
package struct DeadLetterFilter: Equatable, Sendable {
    package var ids: [Int64]?
    package var lane: String?
    package var kind: String?
    package var organization: String?
    package var reason: String?

    package init(
        ids: [Int64]? = nil, lane: String? = nil, kind: String? = nil, organization: String? = nil,
        reason: String? = nil
    ) {
        self.ids = ids
        self.lane = lane
        self.kind = kind
        self.organization = organization
        self.reason = reason
    }

    /// The condition on `$1` to `$5`.
    fileprivate static let condition = """
        state = 'dead' AND ($1::bigint[] IS NULL OR id = ANY($1)) AND ($2::text IS NULL OR lane = $2)
        AND ($3::text IS NULL OR kind = $3) AND ($4::text IS NULL OR organization = $4)
        AND ($5::text IS NULL OR reason = $5)
        """

    fileprivate var parameters: [PostgresParameter] {
        [
            ids.map { .int64s($0) } ?? PostgresParameter(type: PostgresType.int64.arrayOID, bytes: nil),
            .text(lane), .text(kind), .text(organization), .text(reason),
        ]
    }
}

package enum DeadLetters {
    private static let mostErrorBytes = 1_024
    private static let columns = "*, octet_length(payload) AS payload_bytes"
    private static let listColumns = """
        id, partition, stamp, organization, lane, kind, entry, header, ''::bytea AS payload, reason, error, died_at,
        state, changed_at, octet_length(payload) AS payload_bytes
        """

    /// Keeps letters; one that is there already stays as it is, whatever became of it, so a repeated copy does
    /// nothing. Texts lose what Postgres can't hold.
    /// - Returns: how many were new.
    package static func insert(
        _ letters: [DeadLetterRecord], _ connection: PostgresConnection
    ) async throws(PostgresError) -> Int {
        guard !letters.isEmpty else { return 0 }
        let letters = letters.sorted { ($0.partition, $0.stamp, $0.entry) < ($1.partition, $1.stamp, $1.entry) }
        var headers = PostgresArray(of: .bytes, capacity: letters.count)
        var payloads = PostgresArray(of: .bytes, capacity: letters.count)
        for letter in letters {
            headers.append(bytes: letter.header)
            payloads.append(bytes: letter.payload)
        }
        return try await connection.query(
            """
            INSERT INTO dead_letters (
                partition, stamp, organization, lane, kind, entry, header, payload, reason, error, died_at)
            SELECT * FROM unnest(
                $1::bigint[], $2::bigint[], $3::text[], $4::text[], $5::text[], $6::text[], $7::bytea[], $8::bytea[],
                $9::text[], $10::text[], $11::bigint[])
            ON CONFLICT (partition, stamp, lane, entry) DO NOTHING
            """,
            [
                .int64s(letters.map(\.partition)), .int64s(letters.map(\.stamp)),
                .texts(letters.map(\.organization)), .texts(letters.map(\.lane)),
                .texts(letters.map(\.kind)), .texts(letters.map(\.entry)), headers.parameter,
                payloads.parameter, .texts(letters.map { cut($0.reason) }), .texts(letters.map { cut($0.error) }),
                .int64s(letters.map(\.diedAt)),
            ]
        ).affectedRows
    }

    /// The latest letters that wait for a decision, newest first, without their payloads.
    package static func list(
        _ filter: DeadLetterFilter = .init(), limit: Int = 100, _ connection: PostgresConnection
    ) async throws(PostgresError) -> [DeadLetterRecord] {
        try records(
            await connection.query(
                "SELECT \(listColumns) FROM dead_letters WHERE \(DeadLetterFilter.condition) ORDER BY id DESC LIMIT $6",
                filter.parameters + [.int64(Int64(limit))]))
    }

    /// How many wait for a decision.
    package static func count(
        _ filter: DeadLetterFilter = .init(), _ connection: PostgresConnection
    ) async throws(PostgresError) -> Int64 {
        try await connection.query(
            "SELECT count(*) AS n FROM dead_letters WHERE \(DeadLetterFilter.condition)", filter.parameters
        ).first?.int64("n") ?? 0
    }

    /// The smallest stamp among all letters, whatever became of them: a retried one may still be on its way. Nil when
    /// there is none.
    /// - Parameter partitions: of the queue.
    package static func oldestStamp(
        partitions: Int, _ connection: PostgresConnection
    ) async throws(PostgresError) -> Int64? {
        try await connection.query(
            """
            SELECT min(first.stamp) AS stamp FROM generate_series(0, $1::bigint - 1) AS p
            CROSS JOIN LATERAL (
                SELECT stamp FROM dead_letters WHERE partition = p AND stamp > 0 ORDER BY stamp LIMIT 1
            ) AS first
            """, [.int64(Int64(partitions))]
        ).first?.optionalInt64("stamp")
    }

    /// One letter, whatever became of it.
    package static func find(
        id: Int64, _ connection: PostgresConnection
    ) async throws(PostgresError) -> DeadLetterRecord? {
        try records(
            await connection.query("SELECT \(columns) FROM dead_letters WHERE id = $1", [.int64(id)])
        ).first
    }

    /// What became of these letters; ids that there are not are left out.
    package static func states(
        _ ids: [Int64], _ connection: PostgresConnection
    ) async throws(PostgresError) -> [Int64: DeadLetterRecord.State] {
        var states: [Int64: DeadLetterRecord.State] = [:]
        let rows = try await connection.query(
            "SELECT id, state FROM dead_letters WHERE id = ANY($1)", [.int64s(ids)]
        ).rows
        for row in rows { states[try row.int64("id")] = .init(rawValue: try row.string("state")) }
        return states
    }

    /// How many wait for a decision, by lane; lanes without any are absent.
    package static func countByLane(_ connection: PostgresConnection) async throws(PostgresError) -> [String: Int64] {
        var counts: [String: Int64] = [:]
        let rows = try await connection.query(
            "SELECT lane, count(*) AS n FROM dead_letters WHERE state = 'dead' GROUP BY lane", []
        ).rows
        for row in rows { counts[try row.string("lane")] = try row.int64("n") }
        return counts
    }

    /// The letters of one job, newest first, without their payloads; ten at the most.
    package static func of(
        partition: Int, stamp: Int64, _ connection: PostgresConnection
    ) async throws(PostgresError) -> [DeadLetterRecord] {
        try records(
            await connection.query(
                "SELECT \(listColumns) FROM dead_letters WHERE partition = $1 AND stamp = $2 ORDER BY id DESC LIMIT 10",
                [.int64(Int64(partition)), .int64(stamp)]))
    }

    /// The next letters after an id, oldest first and whole, held in the caller's transaction so that nobody else
    /// decides about them meanwhile.
    package static func lock(
        _ filter: DeadLetterFilter, after id: Int64, atMost limit: Int, _ connection: PostgresConnection
    ) async throws(PostgresError) -> [DeadLetterRecord] {
        try records(
            await connection.query(
                """
                SELECT \(columns) FROM dead_letters WHERE \(DeadLetterFilter.condition) AND id > $6
                ORDER BY id LIMIT $7 FOR UPDATE
                """, filter.parameters + [.int64(id), .int64(Int64(limit))]))
    }

    /// Notes what became of letters; a purge takes the payload with it, and a retry that of an AdServices token: the queue
    /// has the token now, and no copy of a credential shall outlive it.
    package static func mark(
        _ ids: [Int64], _ state: DeadLetterRecord.State, nowMicroseconds: Int64, _ connection: PostgresConnection
    ) async throws(PostgresError) {
        _ = try await connection.query(
            """
            UPDATE dead_letters SET state = $2, changed_at = $3,
                payload = CASE WHEN $2 = 'purged' OR kind = 'adservices' THEN ''::bytea ELSE payload END
            WHERE id = ANY($1)
            """, [.int64s(ids), .text(state.rawValue), .int64(nowMicroseconds)])
    }

    /// Gives a letter another payload, before it is retried.
    package static func replacePayload(
        id: Int64, _ payload: [UInt8], _ connection: PostgresConnection
    ) async throws(PostgresError) {
        _ = try await connection.query(
            "UPDATE dead_letters SET payload = $2 WHERE id = $1", [.int64(id), .bytes(payload)])
    }

    /// Letters that still hold an AdServices token received before a time, the oldest first, without their payloads.
    /// - Parameter stamp: microseconds since 1970.
    package static func tokens(
        stampedBefore stamp: Int64, atMost limit: Int, _ connection: PostgresConnection
    ) async throws(PostgresError) -> [DeadLetterRecord] {
        try records(
            await connection.query(
                """
                SELECT \(listColumns) FROM dead_letters
                WHERE kind = 'adservices' AND octet_length(payload) > 0 AND stamp < $1 ORDER BY stamp LIMIT $2
                """, [.int64(stamp), .int64(Int64(limit))]))
    }

    /// Takes the payloads of letters that `tokens` found. What they died of stays to be seen.
    package static func erase(_ ids: [Int64], _ connection: PostgresConnection) async throws(PostgresError) {
        _ = try await connection.query(
            "UPDATE dead_letters SET payload = '' WHERE id = ANY($1)", [.int64s(ids)])
    }

    /// Forgets letters that died before a time, oldest first.
    /// - Returns: how many went; as many as the bound says that there are more.
    package static func forget(
        diedBefore microseconds: Int64, atMost limit: Int, _ connection: PostgresConnection
    ) async throws(PostgresError) -> Int {
        try await connection.query(
            """
            DELETE FROM dead_letters WHERE id IN (
                SELECT id FROM dead_letters WHERE died_at < $1 ORDER BY died_at LIMIT $2 FOR UPDATE SKIP LOCKED)
            """, [.int64(microseconds), .int64(Int64(limit))]
        ).affectedRows
    }

    private static func records(_ result: PostgresResult) throws(PostgresError) -> [DeadLetterRecord] {
        var letters: [DeadLetterRecord] = []
        for row in result.rows { letters.append(try DeadLetterRecord(row)) }
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
