package import Postgres

/// Removes owner writes that no longer change anything that is shown.
///
/// The rows of one purchase stand in the order of (stamp, customer). A row may go when
/// 1. the rows just before and just after it are of the same customer: it is no move, neither the first nor the last row,
///    and every run of one customer's rows keeps both of its ends;
/// 2. its stamp and that of the row just after it are below the cutoff;
/// 3. it carries no proof, or an earlier row of this customer for this purchase does: the first proven one always stays,
///    so whether a customer, or anybody else, ever proved the purchase is what it was;
/// 4. no operator wrote it.
///
/// Which rows go first makes no difference. A write that is delivered again comes back as a row that the next pass
/// removes. A late write whose stamp is not below the cutoff finds all of its neighbours. One below it, never delivered
/// before, may land between two rows that stand for more: owner, proof, `contested`, VERIFIED and every move from the
/// cutoff on are right all the same, but an older move back to the run's customer may be dated at the end of the run, and
/// several late moves inside one run be told as fewer. So the cutoff should lie below every job that may still come.
package enum OwnerWriteCompaction {
    /// What one step did.
    package struct Step: Equatable, Sendable {
        /// Rows looked at, and how many of them went.
        package let looked: Int
        package let removed: Int
        /// No row is left in this pass; the next one begins a day later.
        package let endedPass: Bool
    }

    /// Rows looked at by a step: some 20 ms of Postgres' time. At least 3, or steps would not get on.
    package static let usualRows = 2_000
    /// What became old enough in a day is a day's worth of work.
    private static let passEveryMicroseconds: Int64 = 86_400_000_000
    /// The place of the shared position among the facts of the installation.
    private static let key = "owner_writes.compaction"
    private static let lockKey = "hashtextextended('ratchet.owner_writes.' || current_schema(), 0)"

    /// Whether a pass is due or under way.
    package static func isDue(
        nowMicroseconds: Int64, _ connection: PostgresConnection
    ) async throws(PostgresError) -> Bool {
        try await progress(connection).due <= nowMicroseconds
    }

    /// Puts a pass off, also one that is under way; never to an earlier time.
    package static func postpone(
        to microseconds: Int64, _ connection: PostgresConnection
    ) async throws(PostgresError) {
        try await connection.transaction { () async throws(PostgresError) in
            _ = try await connection.query("SELECT pg_advisory_xact_lock(\(lockKey))")
            var progress = try await progress(connection)
            progress.due = max(progress.due, microseconds)
            try await keep(progress, connection)
        }
    }

    /// Looks at the next rows of the pass and removes those that may go, in one transaction. All writers share one
    /// position, kept in Postgres; only one of them works at a time, and none of them waits for a lock.
    /// - Parameters:
    ///   - cutoff: microseconds since 1970; rows of this stamp and later stay.
    ///   - rows: how many to look at.
    /// - Returns: nil when no pass is due, or another process is at it.
    package static func step(
        cutoff: Int64, rows: Int = usualRows, nowMicroseconds: Int64, _ connection: PostgresConnection
    ) async throws(PostgresError) -> Step? {
        try await connection.transaction { () async throws(PostgresError) -> Step? in
            let lock = try await connection.query("SELECT pg_try_advisory_xact_lock(\(lockKey)) AS mine").first
            guard try lock?.bool("mine") == true else { return nil }
            let progress = try await progress(connection)
            guard progress.due <= nowMicroseconds else { return nil }
            let start = progress.position ?? .first
            guard let page = try await page(from: start, rows, connection) else {
                try await keep(Progress(due: nowMicroseconds + passEveryMicroseconds), connection)
                return Step(looked: 0, removed: 0, endedPass: true)
            }
            let removed = try await remove(from: start, through: page.end, cutoff, connection)
            guard page.count >= rows else {
                try await keep(Progress(due: nowMicroseconds + passEveryMicroseconds), connection)
                return Step(looked: page.count, removed: removed, endedPass: true)
            }
            let next = try await lastButOne(from: start, through: page.end, connection) ?? page.end
            try await keep(Progress(due: progress.due, position: next), connection)
            return Step(looked: page.count, removed: removed, endedPass: false)
        }
    }

    // MARK: - One step

    private static let rowKey = "organization, store, lineage, stamp, customer"
    private static let keyColumns = "organization, store, encode(lineage, 'hex') AS lineage, stamp, customer::text"
    private static let startKey = "$1::text, $2::text, decode($3::text, 'hex'), $4::bigint, $5::text::uuid"
    private static let endKey = "$6::text, $7::text, decode($8::text, 'hex'), $9::bigint, $10::text::uuid"

    /// How many rows follow, up to the bound, and the last of them; nil when there is none.
    private static func page(
        from start: Position, _ rows: Int, _ connection: PostgresConnection
    ) async throws(PostgresError) -> (count: Int, end: Position)? {
        let row = try await connection.query(
            """
            SELECT \(keyColumns), number FROM (
                SELECT \(rowKey), row_number() OVER (ORDER BY \(rowKey)) AS number FROM purchase_owner_writes
                WHERE (\(rowKey)) >= (\(startKey)) ORDER BY \(rowKey) LIMIT $6
            ) AS page ORDER BY number DESC LIMIT 1
            """, start.parameters + [.int64(Int64(rows))]
        ).first
        guard let row else { return nil }
        return (Int(try row.int64("number")), try Position(row))
    }

    /// The row before the last that is left. The next page begins there, so that each row but the table's ends is once
    /// looked at between its neighbours.
    private static func lastButOne(
        from start: Position, through end: Position, _ connection: PostgresConnection
    ) async throws(PostgresError) -> Position? {
        let row = try await connection.query(
            """
            SELECT \(keyColumns) FROM (
                SELECT \(rowKey) FROM purchase_owner_writes
                WHERE (\(rowKey)) >= (\(startKey)) AND (\(rowKey)) <= (\(endKey))
                ORDER BY organization DESC, store DESC, lineage DESC, stamp DESC, customer DESC OFFSET 1 LIMIT 1
            ) AS row
            """, start.parameters + end.parameters
        ).first
        guard let row else { return nil }
        return try Position(row)
    }

    /// The rows of the page that may go. What a page doesn't show is taken for something that keeps a row.
    private static let going = """
        SELECT \(rowKey) FROM (
            SELECT *, lag(customer) OVER purchase AS before, lead(customer) OVER purchase AS after,
                lead(stamp) OVER purchase AS stamp_after,
                bool_or(proven) OVER (
                    PARTITION BY organization, store, lineage, customer ORDER BY stamp
                    ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS proven_before
            FROM (
                SELECT \(rowKey), operator, attested OR jws OR operator AS proven FROM purchase_owner_writes
                WHERE (\(rowKey)) >= (\(startKey)) AND (\(rowKey)) <= (\(endKey))
            ) AS page
            WINDOW purchase AS (PARTITION BY organization, store, lineage ORDER BY stamp, customer)
        ) AS page
        WHERE before = customer AND after = customer AND stamp < $11 AND stamp_after < $11
            AND NOT operator AND (NOT proven OR proven_before)
        """

    private static func remove(
        from start: Position, through end: Position, _ cutoff: Int64, _ connection: PostgresConnection
    ) async throws(PostgresError) -> Int {
        let range = start.parameters + end.parameters + [.int64(cutoff)]
        // Whoever adds an owner write holds its purchase's row, so between this lock and the commit none slips in between
        // two rows. A purchase that is being written to waits for the next pass.
        let locked = try await connection.query(
            """
            SELECT organization, store, encode(lineage, 'hex') AS lineage FROM purchases
            WHERE (organization, store, lineage) IN (SELECT organization, store, lineage FROM (\(going)) AS going)
            ORDER BY organization, store, lineage FOR UPDATE SKIP LOCKED
            """, range)
        guard locked.count > 0 else { return 0 }
        var organizations: [String] = []
        var stores: [String] = []
        var lineages: [String] = []
        for row in locked.rows {
            organizations.append(try row.string("organization"))
            stores.append(try row.string("store"))
            lineages.append(try row.string("lineage"))
        }
        // A statement of its own sees what was committed before the locks were had.
        return try await connection.query(
            """
            DELETE FROM purchase_owner_writes WHERE (\(rowKey)) IN (
                SELECT \(rowKey) FROM (\(going)) AS going
                WHERE (organization, store, lineage) IN (
                    SELECT o, s, decode(l, 'hex') FROM unnest($12::text[], $13::text[], $14::text[]) AS n(o, s, l)))
            """, range + [.texts(organizations), .texts(stores), .texts(lineages)]
        ).affectedRows
    }

    // MARK: - Position

    /// The key of a row.
    private struct Position {
        let organization: String
        let store: String
        /// Hexadecimal.
        let lineage: String
        let stamp: Int64
        let customer: String

        /// Not after any row.
        static let first = Position(
            organization: "", store: "", lineage: "", stamp: 0, customer: "00000000-0000-0000-0000-000000000000")

        init(organization: String, store: String, lineage: String, stamp: Int64, customer: String) {
            self.organization = organization
            self.store = store
            self.lineage = lineage
            self.stamp = stamp
            self.customer = customer
        }

        /// Nil for words that no position was written as.
        init?(_ words: [String]) {
            guard words.count == 5, let stamp = Int64(words[3]), Self.isHexadecimal(words[2], count: 64),
                Self.isHexadecimal(words[4].filter { $0 != "-" }, count: 32)
            else { return nil }
            self.init(
                organization: words[0], store: words[1], lineage: words[2], stamp: stamp, customer: words[4])
        }

        private static func isHexadecimal(_ text: String, count: Int) -> Bool {
            text.utf8.count == count && text.utf8.allSatisfy { Character(UnicodeScalar($0)).isHexDigit }
        }

        var words: [String] { [organization, store, lineage, String(stamp), customer] }

        init(_ row: PostgresRow) throws(PostgresError) {
            organization = try row.string("organization")
            store = try row.string("store")
            lineage = try row.string("lineage")
            stamp = try row.int64("stamp")
            customer = try row.string("customer")
        }

        var parameters: [PostgresParameter] {
            [.text(organization), .text(store), .text(lineage), .int64(stamp), .text(customer)]
        }
    }

    /// When the pass is or was due, and where it stands; no position between passes.
    private struct Progress {
        var due: Int64
        var position: Position?
    }

    private static func progress(_ connection: PostgresConnection) async throws(PostgresError) -> Progress {
        let text = try await InstallationFacts.get(key, connection) ?? ""
        let words = text.split(separator: " ").map(String.init)
        // Something else than a step wrote there: begin anew.
        guard let due = words.first.flatMap({ Int64($0) }) else { return Progress(due: 0) }
        return Progress(due: due, position: Position(Array(words.dropFirst())))
    }

    private static func keep(_ progress: Progress, _ connection: PostgresConnection) async throws(PostgresError) {
        let words = [String(progress.due)] + (progress.position?.words ?? [])
        try await InstallationFacts.set(key, words.joined(separator: " "), connection)
    }
}
