import Bytes
import Foundation
import Postgres
import Store
import TestSupport
import Testing
import Wire

/// What is shown of purchases and customers, from the rules in plain loops over every write there ever was; it knows
/// nothing of compaction.
private struct ShownModel {
    struct Row {
        let user: String
        let stamp: Int64
        var proven: Bool
        var attested: Bool
        var jws: Bool
        var byOperator: Bool
    }
    /// Per purchase, in the order of (stamp, customer).
    var purchases: [String: [Row]] = [:]
    let organization: String

    init(organization: String) { self.organization = organization }

    func id(_ user: String) -> String { UUIDv8.customer(organization: organization, appUserID: user).description }

    mutating func add(_ write: CompactionPropertyTests.Write) {
        var rows = purchases[write.purchase] ?? []
        let index =
            rows.firstIndex { $0.stamp == write.stamp && $0.user == write.user }
            ?? {
                rows.append(
                    Row(
                        user: write.user, stamp: write.stamp, proven: false, attested: false, jws: false,
                        byOperator: false))
                return rows.count - 1
            }()
        rows[index].attested = rows[index].attested || write.attested
        rows[index].jws = rows[index].jws || write.jws
        rows[index].byOperator = rows[index].byOperator || write.byOperator
        rows[index].proven = rows[index].attested || rows[index].jws || rows[index].byOperator
        rows.sort { ($0.stamp, id($0.user)) < ($1.stamp, id($1.user)) }
        purchases[write.purchase] = rows
    }

    struct Move: Equatable {
        var from: String?
        var to: String
        var at: Int64
        var proof: [Bool]
        var contested: Bool
    }

    struct Purchase: Equatable {
        var owner: String
        var contested: Bool
        var flapping: Bool
        var moves: [Move]
    }

    struct Shown: Equatable {
        var purchases: [String: Purchase] = [:]
        /// The purchases that each user owns, and whether it reads VERIFIED.
        var owned: [String: Set<String>] = [:]
        var verified: [String: Bool] = [:]
    }

    func shown(now: Int64) -> Shown {
        var shown = Shown()
        for user in CompactionPropertyTests.users {
            shown.owned[user] = []
            shown.verified[user] = false
        }
        for (name, rows) in purchases {
            let owner = rows.last!.user
            var moves: [Move] = []
            for (index, row) in rows.enumerated() {
                let before = index > 0 ? rows[index - 1].user : nil
                if before == row.user { continue }
                let contested = !row.proven && rows[..<index].contains { $0.proven && $0.user != row.user }
                moves.append(
                    Move(
                        from: before, to: row.user, at: row.stamp, proof: [row.attested, row.jws, row.byOperator],
                        contested: contested))
            }
            let ours = rows.contains { $0.proven && $0.user == owner }
            let theirs = rows.contains { $0.proven && $0.user != owner }
            shown.purchases[name] = Purchase(
                owner: owner, contested: theirs && !ours,
                flapping: moves.count { $0.from != nil && $0.at > now - 86_400_000_000 } >= 3, moves: moves)
            for row in rows {
                shown.owned[row.user, default: []].formUnion(row.user == owner ? [name] : [])
                // Of a customer, attested is said for good.
                let proves = row.attested || (row.user == owner && row.proven)
                shown.verified[row.user] = shown.verified[row.user] == true || proves
            }
        }
        return shown
    }

    /// The stamps and users that may not go, by purchase.
    func kept(cutoff: Int64) -> [String: [String]] {
        purchases.mapValues { rows in
            rows.indices.filter { index in
                let row = rows[index]
                if index == 0 || index == rows.count - 1 || row.byOperator { return true }
                if rows[index - 1].user != row.user || rows[index + 1].user != row.user { return true }
                if row.stamp >= cutoff || rows[index + 1].stamp >= cutoff { return true }
                return row.proven && !rows[..<index].contains { $0.proven && $0.user == row.user }
            }.map { "\(rows[$0].stamp) \(rows[$0].user)" }
        }
    }
}

@Suite struct CompactionPropertyTests {
    fileprivate struct Write {
        var user: String
        var purchase: String
        var stamp: Int64
        var attested: Bool
        var jws: Bool
        var byOperator: Bool

        func job(_ organization: String) -> StampedWrite {
            attribute(
                user, purchase, at: stamp, organization: organization,
                facts: jws ? SampleWrite.facts("\(purchase)-1", of: purchase) : nil, attested: attested)
        }
    }

    fileprivate static let users = ["u1", "u2", "$anon_3"]
    private static let purchases = ["T1", "T2"]
    private static let cutoff: Int64 = 60

    /// Histories with long runs of one user, and stamps that collide.
    private static func history(
        _ stamps: Range<Int64>, _ count: Int, operators: Bool, _ random: inout SeededGenerator
    ) -> [Write] {
        // Some histories have little proof, some have it in every row.
        let proof = random.pick([5, 30, 100])
        let attests = random.chance(30)
        return purchases.flatMap { purchase -> [Write] in
            var user = random.pick(users)
            return (0..<count).map { _ in Int64.random(in: stamps, using: &random) }.sorted().map { stamp in
                if random.chance(25) { user = random.pick(users) }
                let byOperator = operators && random.chance(4)
                let proves = random.chance(proof) && !byOperator
                return Write(
                    user: user, purchase: purchase, stamp: stamp, attested: proves && attests,
                    jws: proves && !(attests && random.chance(50)), byOperator: byOperator)
            }
        }
    }

    /// Delivers writes in any order and in batches; an operator's go in at once.
    private static func deliver(
        _ writes: [Write], _ organization: String, _ random: inout SeededGenerator, _ connection: PostgresConnection
    ) async throws {
        var rest = writes.filter { !$0.byOperator }.shuffled(using: &random)[...]
        while !rest.isEmpty {
            let size = random.pick([1, 5, 40])
            _ = try await SDKWrites.apply(rest.prefix(size).map { $0.job(organization) }, connection)
            rest = rest.dropFirst(size)
        }
        for write in writes where write.byOperator {
            _ = try await connection.query(
                """
                INSERT INTO purchase_owner_writes (
                    organization, store, lineage, stamp, customer, attested, jws, operator)
                VALUES ($1, 'app_store', $2, $3, $4, false, false, true)
                ON CONFLICT (organization, store, lineage, stamp, customer) DO UPDATE SET operator = true
                """,
                [
                    .text(organization), .bytes(SHA256Digest(of: Array(write.purchase.utf8)).bytes),
                    .int64(write.stamp),
                    .uuid(UUIDv8.customer(organization: organization, appUserID: write.user).bytes),
                ])
        }
    }

    private static func shown(
        _ organization: String, now: Int64, _ connection: PostgresConnection
    ) async throws -> ShownModel.Shown {
        var shown = ShownModel.Shown()
        for name in purchases {
            guard
                let record = try await Purchases.show(
                    organization: organization, originalTransactionID: name, nowMicroseconds: now, connection)
            else { continue }
            shown.purchases[name] = ShownModel.Purchase(
                owner: record.owner, contested: record.contested, flapping: record.flapping,
                moves: try await Purchases.history(of: record, connection).map {
                    ShownModel.Move(
                        from: $0.from, to: $0.to, at: $0.at, proof: [$0.attested, $0.jws, $0.operator],
                        contested: $0.contested)
                })
        }
        for user in users {
            guard
                let record = try await Customers.show(
                    organization: organization, appUserID: user, nowMicroseconds: now, connection)
            else { continue }
            shown.verified[user] = record.verified
            shown.owned[user] = Set(record.purchases.map(\.originalTransactionID))
        }
        return shown
    }

    private static func rows(_ organization: String, _ connection: PostgresConnection) async throws -> [String:
        [String]]
    {
        var rows: [String: [String]] = [:]
        for row in try await connection.query(
            """
            SELECT p.original_transaction_id AS purchase, w.stamp, c.app_user_id AS "user"
            FROM purchase_owner_writes AS w JOIN purchases AS p USING (organization, store, lineage)
            JOIN customers AS c ON c.id = w.customer WHERE w.organization = $1 ORDER BY w.stamp, w.customer
            """, [.text(organization)]
        ).rows {
            rows[try row.string("purchase"), default: []].append(
                "\(try row.int64("stamp")) \(try row.string("user"))")
        }
        return rows
    }

    private static func isSubsequence(_ part: [String], of whole: [String]) -> Bool {
        var rest = whole[...]
        return part.allSatisfy { word in
            guard let index = rest.firstIndex(of: word) else { return false }
            rest = rest[(index + 1)...]
            return true
        }
    }

    @Test func nothingThatIsShownChangesWhateverComesAfterwards() async throws {
        let environment = ProcessInfo.processInfo.environment
        let seed = environment["RATCHET_PROPERTY_SEED"].flatMap { UInt64($0) } ?? 20_261_201
        let count = environment["RATCHET_PROPERTY_SETS"].flatMap { Int($0) } ?? 40
        print("compaction: \(count) histories from RATCHET_PROPERTY_SEED=\(seed)")
        try await withStore { connection in
            var random = SeededGenerator(seed: seed)
            var models: [ShownModel] = []
            var all: [[Write]] = []
            // Recent moves are those after stamp 70.
            let now = 86_400_000_000 + Self.cutoff + 10
            func check(_ step: String) async throws {
                for (index, model) in models.enumerated() {
                    let found = try await Self.shown(model.organization, now: now, connection)
                    try #require(found == model.shown(now: now), "history \(index) of seed \(seed), \(step)")
                }
            }
            func deliver(_ more: [Write], to index: Int) async throws {
                for write in more { models[index].add(write) }
                all[index] += more
                try await Self.deliver(more, models[index].organization, &random, connection)
            }

            for index in 0..<count {
                models.append(ShownModel(organization: "c\(index)"))
                all.append([])
                let known = Self.users.map { identify($0, at: 0, organization: "c\(index)") }
                _ = try await SDKWrites.apply(known, connection)
                try await deliver(Self.history(0..<80, 30, operators: true, &random), to: index)
            }
            try await check("as delivered")

            var removed = 0
            for rows in [3, 7, 50] {
                removed += try await CompactionTests.compact(before: Self.cutoff, rows: rows, connection)
            }
            try await check("compacted")
            removed += try await CompactionTests.compact(before: Self.cutoff, rows: 100_000, connection)
            try await check("compacted in one step")
            for model in models {
                #expect(try await Self.rows(model.organization, connection) == model.kept(cutoff: Self.cutoff))
            }
            #expect(removed > 10 * count, "\(removed) rows of \(60 * count) went")

            for index in models.indices {
                let again = all[index].filter { _ in random.chance(50) }
                try await deliver(again + Self.history(Self.cutoff..<90, 8, operators: false, &random), to: index)
            }
            try await check("delivered again, with later ones")
            #expect(try await CompactionTests.compact(before: Self.cutoff, rows: 40, connection) > 0)
            // A short page may not show why a proven row can go; a page of everything does.
            try await CompactionTests.compact(before: Self.cutoff, rows: 100_000, connection)
            try await check("compacted again")
            for model in models {
                #expect(try await Self.rows(model.organization, connection) == model.kept(cutoff: Self.cutoff))
            }

            // Later than the rule allows for: what matters is right all the same, and all that is not as old.
            for index in models.indices {
                try await deliver(Self.history(0..<Self.cutoff, 3, operators: false, &random), to: index)
            }
            for (index, model) in models.enumerated() {
                let found = try await Self.shown(model.organization, now: now, connection)
                let expected = model.shown(now: now)
                #expect(found.owned == expected.owned && found.verified == expected.verified, "history \(index)")
                for (name, purchase) in expected.purchases {
                    let shown = try #require(found.purchases[name])
                    #expect(shown.owner == purchase.owner && shown.contested == purchase.contested)
                    #expect(shown.flapping == purchase.flapping)
                    #expect(
                        shown.moves.filter { $0.at >= Self.cutoff } == purchase.moves.filter { $0.at >= Self.cutoff })
                    #expect(Self.isSubsequence(shown.moves.map(\.to), of: purchase.moves.map(\.to)))
                }
            }
        }
    }
}
