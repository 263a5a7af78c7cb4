import Postgres
import Store
import TestSupport
import Testing

@Suite struct DeadLetterTests {
    private func letter(
        _ stamp: Int64, entry: String = "1-1", lane: String = "write", kind: String = "identify",
        organization: String = "o", reason: String = "poison", diedAt: Int64 = 10
    ) -> DeadLetterRecord {
        DeadLetterRecord(
            partition: 3, stamp: stamp, organization: organization, lane: lane, kind: kind, entry: entry,
            header: Array("h".utf8), payload: Array("{}".utf8), reason: reason, error: "e", diedAt: diedAt)
    }

    @Test func aJobThatDiesAgainIsAnotherLetter() async throws {
        try await withStore { connection in
            let first = try await DeadLetters.insert([letter(9)], connection)
            let again = try await DeadLetters.insert([letter(9, entry: "2-1"), letter(9)], connection)
            // Entries without a readable header have no stamp, and must not hide each other.
            let headless = try await DeadLetters.insert([letter(0, entry: "3-1"), letter(0, entry: "3-2")], connection)
            #expect([first, again, headless] == [1, 1, 2])
            let of = try await DeadLetters.of(partition: 3, stamp: 9, connection)
            #expect(of.map(\.entry) == ["2-1", "1-1"])
        }
    }

    @Test func filtersMeanAllThatTheyName() async throws {
        try await withStore { connection in
            _ = try await DeadLetters.insert(
                [
                    letter(1), letter(2, lane: "verify"), letter(3, kind: "attribute"), letter(4, organization: "p"),
                    letter(5, reason: "unsupported"),
                ], connection)
            func stamps(_ filter: DeadLetterFilter) async throws -> [Int64] {
                let found = try await DeadLetters.list(filter, connection).map(\.stamp)
                let count = try await DeadLetters.count(filter, connection)
                #expect(count == Int64(found.count))
                return found
            }
            #expect(try await stamps(.init()) == [5, 4, 3, 2, 1])
            #expect(try await stamps(.init(lane: "verify")) == [2])
            #expect(try await stamps(.init(kind: "attribute")) == [3])
            #expect(try await stamps(.init(organization: "p")) == [4])
            #expect(try await stamps(.init(reason: "unsupported")) == [5])
            #expect(try await stamps(.init(organization: "o", reason: "poison")) == [3, 2, 1])
            let ids = try await DeadLetters.list(.init(lane: "verify"), connection).map(\.id)
            #expect(try await stamps(.init(ids: ids)) == [2])
            #expect(try await stamps(.init(ids: [])).isEmpty)
        }
    }

    @Test func whatWasDecidedIsNotListedAndNotCopiedAgain() async throws {
        try await withStore { connection in
            _ = try await DeadLetters.insert([letter(1), letter(2)], connection)
            let ids = try await DeadLetters.list(.init(), connection).map(\.id)
            try await DeadLetters.mark([ids[0]], .purged, nowMicroseconds: 77, connection)
            try await DeadLetters.mark([ids[1]], .retried, nowMicroseconds: 78, connection)
            let waiting = try await DeadLetters.count(.init(), connection)
            let copiedLate = try await DeadLetters.insert([letter(1), letter(2)], connection)
            #expect(waiting == 0 && copiedLate == 0)
            let purged = try #require(try await DeadLetters.find(id: ids[0], connection))
            #expect(purged.payload == [] && purged.state == .purged && purged.changedAt == 77)
            let retried = try #require(try await DeadLetters.find(id: ids[1], connection))
            #expect(retried.payload == Array("{}".utf8) && retried.state == .retried)
        }
    }

    /// A sealed token is a credential: one copy is enough.
    @Test func aRetriedTokenStaysInNoLetter() async throws {
        try await withStore { connection in
            for (stamp, kind) in [(1, "adservices"), (2, "identify"), (3, "adservices")] as [(Int64, String)] {
                let letter = DeadLetterRecord(
                    partition: 0, stamp: stamp, organization: "o", lane: "write", kind: kind, entry: "\(stamp)-0",
                    header: [], payload: Array("{}".utf8), reason: "r", error: "", diedAt: 9)
                _ = try await DeadLetters.insert([letter], connection)
            }
            let ids = try await DeadLetters.list(.init(), connection).map(\.id).sorted()
            try await DeadLetters.mark(Array(ids.prefix(2)), .retried, nowMicroseconds: 78, connection)
            var payloads: [[UInt8]?] = []
            for id in ids { payloads.append(try await DeadLetters.find(id: id, connection)?.payload) }
            #expect(payloads == [[], Array("{}".utf8), Array("{}".utf8)])
            #expect(try await DeadLetters.tokens(stampedBefore: 3, atMost: 9, connection).isEmpty)
            let overdue = try await DeadLetters.tokens(stampedBefore: 4, atMost: 9, connection)
            #expect(overdue.map(\.id) == [ids[2]] && overdue.first?.entry == "3-0")
            try await DeadLetters.erase(overdue.map(\.id), connection)
            #expect(try await DeadLetters.tokens(stampedBefore: 4, atMost: 9, connection).isEmpty)
            #expect(
                try await DeadLetters.count(.init(lane: "write"), connection) == 1, "it still tells what it died of")
        }
    }

    @Test func oldLettersAreForgottenBoundedly() async throws {
        try await withStore { connection in
            _ = try await DeadLetters.insert((1...10).map { letter($0, diedAt: $0) }, connection)
            let first = try await DeadLetters.forget(diedBefore: 6, atMost: 3, connection)
            let second = try await DeadLetters.forget(diedBefore: 6, atMost: 3, connection)
            #expect([first, second] == [3, 2])
            let left = try await DeadLetters.list(.init(), connection).map(\.stamp)
            #expect(left == [10, 9, 8, 7, 6])
        }
    }

    @Test func lettersOfTheFirstSchemaKeepTheirPlace() async throws {
        let store = TestStore(schema: try TestPostgres.shared.get().schema())
        try await store.withConnection { connection in
            try await Migrator.migrate(connection, to: Array(Migration.all.prefix(1)))
            try await connection.execute(
                "INSERT INTO dead_letters VALUES (1, 2, 'o', 'write', 'identify', 'h', 'p', 'poison', 'e', 3)")
            try await Migrator.migrate(connection)
            let kept = try await DeadLetters.list(.init(), connection)
            #expect(kept.map(\.stamp) == [2] && kept.first?.state == .dead && (kept.first?.id ?? 0) > 0)
        }
    }

    @Test func theAuditLogOfAllHoldsThatOfEachOne() async throws {
        try await withStore { connection in
            for organization in ["a", nil, "b"] {
                try await AuditLog.append(
                    AuditEntry(organization: organization, at: 1, actor: "ops", action: "x", subject: "y"), connection)
            }
            let all = try await AuditLog.latest(limit: 10, connection)
            #expect(all.map(\.organization) == ["b", nil, "a"])
            let bounded = try await AuditLog.latest(limit: 1, connection)
            #expect(bounded.count == 1)
        }
    }
}
