import EventLoop
import Postgres
import TestSupport

/// The ledger compared with Postgres.
struct ChaosVerdict: Sendable {
    /// By fault window: acknowledged writes of which nothing, or something else, is stored.
    private(set) var lost: [Int: Int] = [:]
    /// By fault window: owner writes beyond what was sent.
    private(set) var doubled: [Int: Int] = [:]
    /// By fault window: acknowledged writes looked at.
    private(set) var looked: [Int: Int] = [:]
    /// The first findings, in words.
    private(set) var findings: [String] = []

    private static let mostFindings = 20

    /// - Parameter people: whose writes are looked at; rows of others are nobody's concern.
    init(_ people: [ChaosLedger.Person], in system: RunningSystem) async throws {
        let stored = try await Stored(system)
        var transactions = 0
        for person in people {
            for entry in person.entries { looked[entry.window, default: 0] += 1 }
            compareCustomers(person, stored)
            comparePurchases(person, stored)
            transactions += 1
        }
        // Each person's one genuine transaction, however often it was posted.
        if stored.people == people.count, stored.transactions != transactions {
            note("\(stored.transactions) transactions of \(transactions)")
            let window = people.last?.entries.last?.window ?? 0
            lost[window, default: 0] += max(0, transactions - stored.transactions)
            doubled[window, default: 0] += max(0, stored.transactions - transactions)
        }
    }

    private mutating func note(_ finding: String) {
        if findings.count < Self.mostFindings { findings.append(finding) }
    }

    private mutating func compareCustomers(_ person: ChaosLedger.Person, _ stored: Stored) {
        for (id, expected) in person.workload.customers {
            let wanted = Stored.text(expected.attributes)
            guard stored.customers[id] != wanted else { continue }
            note("customer \(id): \(stored.customers[id] ?? "missing") instead of \(wanted)")
            lost[lastWindow(person, naming: id), default: 0] += 1
        }
    }

    private mutating func comparePurchases(_ person: ChaosLedger.Person, _ stored: Stored) {
        for (id, expected) in person.workload.purchases {
            let calls = zip(person.workload.scripts[0], person.entries).filter {
                $0.0.path == "attribute" && $0.0.lineage == id
            }
            let window = calls.last?.1.window ?? 0
            // Each acknowledged call has a row; a repetition may have one more, as its first try may have got through.
            let rows = stored.ownerWrites[id] ?? 0
            let sent = calls.reduce(0) { $0 + $1.1.attempts }
            if rows < calls.count {
                note("purchase \(id): \(rows) owner writes of \(calls.count) acknowledged")
                lost[window, default: 0] += calls.count - rows
            }
            if rows > sent {
                note("purchase \(id): \(rows) owner writes of \(sent) sent")
                doubled[window, default: 0] += rows - sent
            }
            let moves = stored.moves[id] ?? []
            if moves != expected.moves || stored.proven[id] != expected.jwsVerified {
                note("purchase \(id): moves \(moves) instead of \(expected.moves), proof \(stored.proven[id] ?? false)")
                lost[window, default: 0] += 1
            }
        }
    }

    private func lastWindow(_ person: ChaosLedger.Person, naming id: String) -> Int {
        zip(person.workload.scripts[0], person.entries).reversed().first { $0.0.body.contains("\"\(id)\"") }?.1.window
            ?? 0
    }

    /// What the tables hold, read with statements of the test's own.
    private struct Stored: Sendable {
        /// Attributes as `text` writes them.
        var customers: [String: String] = [:]
        /// By original transaction id.
        var ownerWrites: [String: Int] = [:]
        var moves: [String: [String]] = [:]
        var proven: [String: Bool] = [:]
        var transactions = 0
        /// Half of the customers: each person has an anonymous one and one with a name.
        var people: Int { customers.count / 2 }

        static func text(_ attributes: [String: String]) -> String {
            attributes.sorted { $0.key < $1.key }.map { "\($0.key)=\($0.value)" }.joined(separator: " ")
        }

        init(_ system: RunningSystem) async throws {
            let configuration = system.database.configuration(schema: system.schema)
            self = try await system.loop.run { [loop = system.loop] in
                let connection = try await PostgresConnection.connect(configuration, on: loop)
                defer { connection.close() }
                return try await Stored(connection)
            }
        }

        private init(_ connection: PostgresConnection) async throws {
            let attributes = """
                SELECT app_user_id AS id, (
                    SELECT string_agg(a.key || '=' || (a.value ->> 1), ' ' ORDER BY a.key)
                    FROM jsonb_each(c.attributes) AS a WHERE a.value ->> 1 IS NOT NULL) AS text
                FROM customers AS c
                """
            for row in try await connection.query(attributes).rows {
                customers[try row.string("id")] = try row.optionalString("text") ?? ""
            }
            let purchases = """
                SELECT original_transaction_id AS id, jws_verified AS proven, (
                    SELECT count(*) FROM purchase_owner_writes AS w
                    WHERE (w.organization, w.store, w.lineage) = (p.organization, p.store, p.lineage)) AS writes
                FROM purchases AS p
                """
            for row in try await connection.query(purchases).rows {
                let id = try row.string("id")
                proven[id] = try row.bool("proven")
                ownerWrites[id] = Int(try row.int64("writes"))
            }
            let owners = """
                SELECT p.original_transaction_id AS id, c.app_user_id AS owner
                FROM purchase_moves AS m
                JOIN purchases AS p USING (organization, store, lineage)
                JOIN customers AS c ON c.organization = m.organization AND c.id = m.to_customer
                ORDER BY m.stamp, m.to_customer
                """
            for row in try await connection.query(owners).rows {
                moves[try row.string("id"), default: []].append(try row.string("owner"))
            }
            transactions = Int(
                try await connection.query("SELECT count(*) AS n FROM transactions").first?.int64("n") ?? 0)
        }
    }
}
