import AppleAds
import EventLoop
import JSON
import Postgres
import Store
import TestSupport
import Testing

@Suite struct AdServicesSweepTests {
    private static let lease = [UInt8](repeating: 1, count: 16)
    private static let other = [UInt8](repeating: 2, count: 16)

    private func add(
        _ subject: String, due: Int64, stamp: Int64 = 1, organization: String = "o", callback: String? = nil,
        _ connection: PostgresConnection
    ) async throws {
        _ = try await connection.query(
            """
            INSERT INTO adservices_tokens (
                organization, bundle_id, subject_kind, subject, stamp, sealed_token, callback, due_at, environment,
                attested)
            VALUES ($1, 'com.example.app', 'install', $2, $3, '\\x0102', $4, $5, 'Production', false)
            """, [.text(organization), .text(subject), .int64(stamp), .text(callback), .int64(due)])
    }

    private func claim(
        _ limit: Int = 10, now: Int64, lease: [UInt8] = AdServicesSweepTests.lease, _ connection: PostgresConnection
    ) async throws -> [ClaimedToken] {
        try await AdServicesSweep.claim(limit, lease: lease, leaseEnd: now + 60, now: now, connection)
    }

    private func payload(_ text: String) throws -> AttributionPayload {
        try #require(AttributionPayload(Array(text.utf8), using: JSONParser()))
    }

    @Test func whatHasBeenDueForLongestIsClaimedFirst() async throws {
        try await withStore { connection in
            for (subject, due) in [("c", 30), ("a", 10), ("d", 40), ("b", 20)] {
                try await add(subject, due: Int64(due), connection)
            }
            let claimed = try await claim(2, now: 35, connection)
            #expect(claimed.map(\.key.subject) == ["a", "b"] && claimed.map(\.dueAt) == [10, 20])
            #expect(claimed[0].sealedToken == [1, 2] && claimed[0].leaseEnd == 95 && claimed[0].lastStatus == nil)
            #expect(try await claim(now: 35, connection).map(\.key.subject) == ["c"], "d is not due, a and b are held")
            #expect(try await claim(now: 94, connection).map(\.key.subject) == ["d"])
            #expect(
                try await claim(now: 95, lease: Self.other, connection).map(\.key.subject).sorted() == ["a", "b", "c"],
                "whose lease is over is due again")
        }
    }

    @Test func twoSweepersAtOnceShareWhatIsDue() async throws {
        let store = try await TestStore.make()
        try await store.withConnection { connection in
            for index in 0..<20 { try await add("t\(index)", due: 1, connection) }
            let others = try await connection.transaction { () async throws(PostgresError) in
                let mine = try await AdServicesSweep.claim(8, lease: Self.lease, leaseEnd: 99, now: 5, connection)
                // Another one while this claim is not committed: it must neither wait nor take the same.
                do {
                    let theirs = try await store.withConnection { second in
                        try await AdServicesSweep.claim(20, lease: Self.other, leaseEnd: 99, now: 5, second)
                    }
                    return (mine.map(\.key.subject), theirs.map(\.key.subject))
                } catch { throw PostgresError(.usage, "\(error)") }
            }
            #expect(others.0.count == 8 && others.1.count == 12)
            #expect(Set(others.0).isDisjoint(with: others.1))
        }
    }

    @Test func anEndErasesTheTokenAndKeepsTheAnswer() async throws {
        try await withStore { connection in
            for subject in ["a", "b", "c"] { try await add(subject, due: 1, connection) }
            let claimed = try await claim(now: 5, connection).sorted { $0.key.subject < $1.key.subject }
            let answer = try payload(
                #"{"attribution":true,"campaignId":9007199254740993,"keywordId":7,"claimType":"Click","new":1}"#)
            let held = try await AdServicesSweep.finish(
                [
                    SweptToken(
                        claimed[2], ask: .init(at: 6, status: 400, counts: true), next: .ended(.invalid, nil, at: 7)),
                    SweptToken(
                        claimed[0], ask: .init(at: 6, status: 200, counts: true),
                        next: .ended(.resolved, answer, at: 7)),
                    SweptToken(claimed[1], ask: .init(at: 6, status: 0, counts: false), next: .due(70)),
                ], connection)
            #expect(held.count == 3)
            let rows = try await connection.query("SELECT * FROM adservices_tokens ORDER BY subject").rows
            #expect(try rows[0].string("state") == "resolved" && rows[0].int64("campaign_id") == 9_007_199_254_740_993)
            #expect(try rows[0].int64("keyword_id") == 7 && rows[0].optionalInt64("ad_id") == nil)
            #expect(try rows[0].string("payload").hasSuffix(#""new":1}"#) && rows[0].string("claim_type") == "Click")
            #expect(try rows[2].string("state") == "invalid" && rows[2].int64("last_status") == 400)
            for row in [rows[0], rows[2]] {
                #expect(try row.optionalBytes("sealed_token") == nil && row.optionalInt64("due_at") == nil)
                #expect(try row.int64("ended_at") == 7 && row.int64("attempts") == 1 && row.int64("asks") == 1)
            }
            #expect(try rows[1].string("state") == "pending" && rows[1].int64("due_at") == 70)
            #expect(try rows[1].bytes("sealed_token") == [1, 2] && rows[1].optionalBytes("lease") == nil)
            #expect(try rows[1].int64("attempts") == 0 && rows[1].int64("asks") == 1)
            #expect(try rows[1].int64("last_status") == 0 && rows[1].int64("last_asked_at") == 6)
        }
    }

    @Test func whatWasGivenBackIsAsItWas() async throws {
        try await withStore { connection in
            try await add("a", due: 3, connection)
            let before = try await connection.query("SELECT t::text AS row FROM adservices_tokens AS t").first
            let claimed = try await claim(now: 5, connection)
            _ = try await AdServicesSweep.finish(claimed.map { .givenBack($0) }, connection)
            let after = try await connection.query("SELECT t::text AS row FROM adservices_tokens AS t").first
            #expect(try before?.string("row") == after?.string("row"))
        }
    }

    @Test func onlyTheHolderOfALeaseMayFinish() async throws {
        try await withStore { connection in
            try await add("a", due: 1, connection)
            let late = try await claim(now: 5, connection)
            let again = try await claim(now: 65, lease: Self.other, connection)
            let end = { (token: ClaimedToken, ending: AdServicesVerdict.Ending) in
                SweptToken(token, ask: .init(at: 66, status: 200, counts: true), next: .ended(ending, nil, at: 67))
            }
            #expect(try await AdServicesSweep.finish([end(late[0], .organic)], connection).isEmpty)
            #expect(try await AdServicesSweep.finish([end(again[0], .resolved)], connection).count == 1)
            #expect(try await AdServicesSweep.finish([end(again[0], .organic)], connection).isEmpty, "an end is an end")
            let row = try await connection.query("SELECT state, asks FROM adservices_tokens").first
            #expect(try row?.string("state") == "resolved" && row?.int64("asks") == 1)
        }
    }

    @Test func finishingWaitsForAWriterAndKeepsWhatThatWrote() async throws {
        let store = try await TestStore.make()
        try await store.withConnection { connection in
            try await add("a", due: 1, connection)
            let claimed = try await claim(now: 5, connection)
            let counting = Task {
                try await store.withConnection { writer in
                    try await writer.transaction { () async throws(PostgresError) in
                        _ = try await writer.query("UPDATE adservices_tokens SET later_tokens = later_tokens + 1")
                        _ = try await writer.query("SELECT pg_sleep(0.3)")
                    }
                }
            }
            // Once the writer holds the row.
            while try await connection.query(
                "SELECT 1 AS one FROM pg_stat_activity WHERE query LIKE '%pg_sleep(0.3)%' AND pid <> pg_backend_pid()"
            ).count == 0 {}
            let held = try await AdServicesSweep.finish(
                [
                    SweptToken(
                        claimed[0], ask: .init(at: 6, status: 200, counts: true), next: .ended(.organic, nil, at: 7))
                ], connection)
            try await counting.value
            #expect(held.count == 1)
            let row = try await connection.query("SELECT state, later_tokens FROM adservices_tokens").first
            #expect(try row?.string("state") == "organic" && row?.int64("later_tokens") == 1)
        }
    }

    @Test func spellingsThatUnicodeTakesForOneAreTwo() async throws {
        try await withStore { connection in
            for subject in ["caf\u{e9}", "cafe\u{301}"] { try await add(subject, due: 1, connection) }
            let claimed = try await claim(now: 5, connection)
            #expect(claimed.count == 2 && claimed[0].key != claimed[1].key)
            let held = try await AdServicesSweep.finish(claimed.map { .givenBack($0) }, connection)
            #expect(held.count == 2)
        }
    }

    @Test func aHoldIsOnlyMadeLonger() async throws {
        try await withStore { connection in
            #expect(try await AdServicesSweep.state(now: 5, connection).holdReason == nil)
            try await AdServicesSweep.hold(until: 50, reason: "unreachable", connection)
            try await AdServicesSweep.hold(until: 40, reason: "too_many", connection)
            let state = try await AdServicesSweep.state(now: 5, connection)
            #expect(state.heldUntil == 50 && state.holdReason == "unreachable" && state.pausedAt == nil)
            #expect(state.nextDueAt == nil && abs(state.databaseTime - SystemTime().wallMicroseconds) < 60_000_000)
        }
    }

    @Test func theBacklogIsWhatIsDueAndHeldByNobody() async throws {
        try await withStore { connection in
            for (subject, due) in [("a", 1), ("b", 2), ("c", 3), ("d", 100)] {
                try await add(subject, due: Int64(due), connection)
            }
            _ = try await claim(1, now: 10, connection)
            #expect(try await AdServicesSweep.backlog(now: 10, connection) == SweepBacklog(due: 2, oldestDueAt: 2))
            #expect(try await AdServicesSweep.state(now: 10, connection).nextDueAt == 2)
            #expect(try await AdServicesSweep.state(now: 70, connection).nextDueAt == 1, "its lease is over")
            #expect(try await AdServicesSweep.backlog(now: 0, connection) == SweepBacklog(due: 0, oldestDueAt: nil))
        }
    }

    /// Whatever the table holds, a claim reads its part of one index and sorts nothing of the table.
    @Test func aClaimGoesByTheIndexAlone() async throws {
        try await withStore { connection in
            _ = try await connection.execute(
                """
                INSERT INTO adservices_tokens (
                    organization, bundle_id, subject_kind, subject, stamp, sealed_token, due_at, state, ended_at,
                    environment, attested)
                SELECT 'o', 'com.example.app', 'install', 'i' || n, n, CASE WHEN n % 10 = 0 THEN '\\x01'::bytea END,
                    CASE WHEN n % 10 = 0 THEN n END, CASE WHEN n % 10 = 0 THEN 'pending' ELSE 'organic' END,
                    CASE WHEN n % 10 <> 0 THEN n END, 'Production', false
                FROM generate_series(1, 20000) AS n;
                ANALYZE adservices_tokens
                """)
            for mode in ["force_generic_plan", "force_custom_plan"] {
                _ = try await connection.execute(
                    """
                    SET plan_cache_mode = \(mode);
                    PREPARE \(mode)(bytea, bigint, bigint, bigint, bigint) AS \(AdServicesSweep.claimStatement)
                    """)
                let plan = try await connection.query("EXPLAIN EXECUTE \(mode)('\\x01', 900000, 15000, 500, 0)").rows
                    .map { row throws(PostgresError) in try row.string("QUERY PLAN") }.joined(separator: "\n")
                #expect(plan.contains("Index Scan using adservices_tokens_due"), "\(mode):\n\(plan)")
                #expect(plan.contains("Tid Scan") && !plan.contains("Seq Scan"), "\(mode):\n\(plan)")
                #expect(!plan.contains("Sort") && !plan.contains("Join"), "\(mode):\n\(plan)")
            }
        }
    }

    /// A claim writes nothing that is indexed, and its page has room: three entries of indexes less.
    @Test func aClaimIsAnUpdateInPlace() async throws {
        try await withStore { connection in
            _ = try await connection.execute(
                """
                INSERT INTO adservices_tokens (
                    organization, bundle_id, subject_kind, subject, stamp, sealed_token, due_at, environment, attested)
                SELECT 'o', 'com.example.app', 'install', 'i' || n, n, decode(repeat('ab', 412), 'hex'), n,
                    'Production', false
                FROM generate_series(1, 600) AS n
                """)
            let (updates, inPlace) = try await connection.transaction {
                () async throws(PostgresError) -> (Int64?, Int64?) in
                _ = try await AdServicesSweep.claim(500, lease: Self.lease, leaseEnd: 999, now: 600, connection)
                let row = try await connection.query(
                    """
                    SELECT pg_stat_get_xact_tuples_updated('adservices_tokens'::regclass) AS updates,
                        pg_stat_get_xact_tuples_hot_updated('adservices_tokens'::regclass) AS in_place
                    """
                ).first
                return (try row?.int64("updates"), try row?.int64("in_place"))
            }
            #expect(updates == 500 && inPlace == 500)
        }
    }

    /// The claims of an older sweeper know nothing of `lease_end`.
    @Test func anOlderSweeperMayFinishAndClaimsNothing() async throws {
        let store = TestStore(schema: try TestPostgres.shared.get().schema())
        let claimed = """
            UPDATE adservices_tokens SET lease = '\\x01010101010101010101010101010101', due_before = due_at, due_at = 900
            WHERE subject =
            """
        try await store.withConnection { connection in
            try await Migrator.migrate(connection, to: Array(Migration.all.prefix(6)))
            for subject in ["a", "b"] { try await add(subject, due: 3, connection) }
            try await connection.execute("\(claimed) 'a'")
            try await Migrator.migrate(connection)
            await #expect(throws: PostgresError.self) { try await connection.execute("\(claimed) 'b'") }
            #expect(try await claim(now: 899, connection).map(\.key.subject) == ["b"], "a is held until 900")
            let rows = try await connection.query(
                "SELECT due_at, lease_end FROM adservices_tokens ORDER BY subject"
            ).rows
            #expect(try rows[0].int64("due_at") == 3 && rows[0].int64("lease_end") == 900)
            // What came of it, as that sweeper says.
            try await connection.execute(
                "UPDATE adservices_tokens SET due_at = 950, due_before = NULL, lease = NULL WHERE subject = 'a'")
            #expect(try await claim(now: 950, lease: Self.other, connection).count == 1)
        }
    }

    /// What came to be due before the place is another look's.
    @Test func aClaimGoesOnFromAPlace() async throws {
        try await withStore { connection in
            for (subject, due) in [("a", 1), ("b", 2), ("c", 3), ("d", 4)] {
                try await add(subject, due: Int64(due), connection)
            }
            let claimed = try await AdServicesSweep.claim(
                2, lease: Self.lease, leaseEnd: 99, now: 5, since: 2, connection)
            #expect(claimed.map(\.key.subject) == ["b", "c"])
            #expect(try await AdServicesSweep.state(now: 5, since: 2, connection).nextDueAt == 4)
            #expect(try await AdServicesSweep.state(now: 5, connection).nextDueAt == 1)
        }
    }

    /// Twice as many results take twice as long, not four times: each row is found by its place or its key, and results
    /// are joined to nothing else.
    @Test(arguments: ["force_generic_plan", "force_custom_plan"])
    func finishingGoesByPlaceOrByKeyAlone(mode: String) async throws {
        try await withStore { connection in
            _ = try await connection.execute(
                """
                INSERT INTO adservices_tokens (
                    organization, bundle_id, subject_kind, subject, stamp, sealed_token, due_at, environment, attested)
                SELECT 'o', 'com.example.app', 'install', 'i' || n, n, '\\x01', n, 'Production', false
                FROM generate_series(1, 20000) AS n;
                ANALYZE adservices_tokens;
                SET plan_cache_mode = \(mode);
                PREPARE finish AS \(AdServicesSweep.finishStatement);
                PREPARE finish_moved AS \(AdServicesSweep.finishMovedStatement)
                """)
            func column(_ value: String, _ type: String) -> String {
                "array_fill(\(value)::\(type), ARRAY[100])"
            }
            let texts = column("'o'", "text")
            let ids = column("1", "bigint")
            let values =
                Array(repeating: texts, count: 4) + [column("'\\x01'", "bytea"), texts]
                + Array(repeating: ids, count: 12) + Array(repeating: texts, count: 4)
                + [ids, ids, texts, column("'(1,1)'", "text")]
            for (statement, scan) in [
                ("finish", "Tid Scan on adservices_tokens"),
                ("finish_moved", "Index Scan using adservices_tokens_pkey"),
            ] {
                let plan = try await connection.query(
                    "EXPLAIN EXECUTE \(statement)(\(values.joined(separator: ", ")))"
                ).rows.map { row throws(PostgresError) in try row.string("QUERY PLAN") }
                let text = plan.joined(separator: "\n")
                #expect(plan.count { $0.contains(scan) } == 2, "\(text)")
                #expect(plan.count { $0.contains("CTE Scan") } == 1 && !text.contains("Seq Scan"), "\(text)")
            }
        }
    }

    /// The place of a row is another's after it has moved and its old place was given away.
    @Test func aPlaceThatIsAnothersByNowChangesNothingThere() async throws {
        try await withStore { connection in
            for subject in ["a", "b"] { try await add(subject, due: 1, connection) }
            let claimed = try await claim(now: 5, connection).sorted { $0.key.subject < $1.key.subject }
            let (a, b) = (claimed[0], claimed[1])
            let strayed = ClaimedToken(
                key: a.key, lease: a.lease, leaseEnd: a.leaseEnd, receivedAt: a.receivedAt, dueAt: a.dueAt,
                sealedToken: a.sealedToken, attempts: a.attempts, lastStatus: a.lastStatus, callback: a.callback,
                place: b.place)
            let held = try await AdServicesSweep.finish(
                [
                    SweptToken(
                        strayed, ask: .init(at: 6, status: 200, counts: true), next: .ended(.organic, nil, at: 7))
                ], connection)
            #expect(held == [0])
            let rows = try await connection.query("SELECT state FROM adservices_tokens ORDER BY subject").rows
            #expect(try rows.map { row throws(PostgresError) in try row.string("state") } == ["organic", "pending"])
        }
    }
}
