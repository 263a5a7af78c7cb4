import EventLoop
import Foundation
import Postgres
import Store
import TestSupport
import Testing
import Wire

/// Old owner writes go without anybody being able to tell.
@Suite struct CompactionTests {
    private static let day: Int64 = 86_400_000_000

    /// Runs a whole pass, whether or not one is due, and the next one is due at once.
    /// - Returns: how many rows went.
    @discardableResult
    static func compact(
        before cutoff: Int64, rows: Int = OwnerWriteCompaction.usualRows, _ connection: PostgresConnection
    ) async throws -> Int {
        let now = try #require(Int64(try await InstallationFacts.get("test.now", connection) ?? "0")) + 2 * day
        try await InstallationFacts.set("test.now", String(now), connection)
        var removed = 0
        while true {
            let step = try #require(
                try await OwnerWriteCompaction.step(
                    cutoff: cutoff, rows: rows, nowMicroseconds: now, connection))
            #expect(step.looked <= rows)
            removed += step.removed
            if step.endedPass { return removed }
        }
    }

    private func stamps(_ connection: PostgresConnection) async throws -> [Int64] {
        var stamps: [Int64] = []
        for row in try await connection.query("SELECT stamp FROM purchase_owner_writes ORDER BY stamp").rows {
            stamps.append(try row.int64("stamp"))
        }
        return stamps
    }

    @Test func onlyOldRowsInsideARunGo() async throws {
        try await withStore { connection in
            _ = try await SDKWrites.apply(
                [
                    attribute("a", "T1", at: 1), attribute("a", "T1", at: 2),
                    attribute("a", "T1", at: 3, attested: true),
                    attribute("a", "T1", at: 4, attested: true), attribute("a", "T1", at: 5),
                    attribute("b", "T1", at: 6), attribute("a", "T1", at: 7), attribute("a", "T1", at: 8),
                    attribute("a", "T1", at: 9), attribute("a", "T1", at: 20), attribute("a", "T1", at: 21),
                    attribute("a", "T1", at: 22),
                    // Another purchase is another run.
                    attribute("a", "T2", at: 23),
                ], connection)
            let removed = try await Self.compact(before: 20, connection)
            // 3 is the first proven one, 5 and 7 are ends, 9 is followed by a young one.
            #expect(removed == 3)
            #expect(try await stamps(connection) == [1, 3, 5, 6, 7, 9, 20, 21, 22, 23])
            #expect(try await Self.compact(before: 20, connection) == 0)
            #expect(try await Self.compact(before: 100, connection) == 3)
            #expect(try await stamps(connection) == [1, 3, 5, 6, 7, 22, 23])
        }
    }

    @Test func whatAnOperatorWroteStays() async throws {
        try await withStore { connection in
            _ = try await SDKWrites.apply([attribute("a", "T1", at: 1, attested: true)], connection)
            _ = try await Purchases.move(
                organization: "o", originalTransactionID: "T1", to: "a", actor: "ops", nowMicroseconds: 2, connection)
            _ = try await SDKWrites.apply(
                [attribute("a", "T1", at: 3), attribute("a", "T1", at: 4)], connection)
            #expect(try await Self.compact(before: 100, connection) == 1)
            #expect(try await stamps(connection) == [1, 2, 4])
        }
    }

    @Test func aPassIsOnceADayAndCanBePutOff() async throws {
        try await withStore { connection in
            _ = try await SDKWrites.apply((1...9).map { attribute("a", "T1", at: $0) }, connection)
            func step(_ now: Int64, rows: Int = 5) async throws -> OwnerWriteCompaction.Step? {
                try await OwnerWriteCompaction.step(cutoff: 100, rows: rows, nowMicroseconds: now, connection)
            }
            #expect(try await OwnerWriteCompaction.isDue(nowMicroseconds: 1_000, connection))
            let first = try #require(try await step(1_000))
            #expect(first.removed == 3 && !first.endedPass)
            // In the middle of a pass.
            try await OwnerWriteCompaction.postpone(to: 5_000, connection)
            try await OwnerWriteCompaction.postpone(to: 4_000, connection)
            #expect(try await step(4_999) == nil)
            let second = try #require(try await step(5_000))
            #expect(second.removed == 3 && !second.endedPass)
            var last = second
            while !last.endedPass { last = try #require(try await step(5_000)) }
            #expect(try await stamps(connection) == [1, 9])
            #expect(try await step(4_999 + Self.day) == nil)
            #expect(try await step(5_000 + Self.day)?.endedPass == true)
        }
    }

    @Test func aPositionThatCanNotBeReadBeginsAnew() async throws {
        try await withStore { connection in
            _ = try await SDKWrites.apply((1...3).map { attribute("a", "T1", at: $0) }, connection)
            for text in ["", "x", "0 o app_store", "0 o app_store zz x y", "0 o app_store 00 -1 -"] {
                try await InstallationFacts.set("owner_writes.compaction", text, connection)
                let step = try await OwnerWriteCompaction.step(cutoff: 0, nowMicroseconds: 1, connection)
                #expect(step?.looked == 3, "\(text)")
            }
        }
    }

    @Test func onlyOneProcessWorksAtATime() async throws {
        let store = try await TestStore.make()
        try await store.withConnection { first in
            _ = try await SDKWrites.apply((1...9).map { attribute("a", "T1", at: $0) }, first)
            try await first.execute(
                """
                BEGIN;
                SELECT pg_advisory_xact_lock(hashtextextended('ratchet.owner_writes.' || current_schema(), 0))
                """)
            try await store.withConnection { second in
                let step = try await OwnerWriteCompaction.step(cutoff: 100, nowMicroseconds: 1, second)
                #expect(step == nil)
            }
            try await first.execute("COMMIT")
            #expect(try await OwnerWriteCompaction.step(cutoff: 100, nowMicroseconds: 1, first)?.removed == 7)
        }
    }

    @Test func aPurchaseThatIsBeingWrittenToWaits() async throws {
        let store = try await TestStore.make()
        try await store.withConnection { writer in
            _ = try await SDKWrites.apply(
                (1...9).flatMap { [attribute("a", "T1", at: $0), attribute("a", "T2", at: $0)] }, writer)
            // As a writer in the middle of a batch, whose row for b is not committed yet.
            try await writer.execute(
                """
                BEGIN;
                SELECT FROM purchases WHERE original_transaction_id = 'T1' FOR UPDATE;
                INSERT INTO purchase_owner_writes
                SELECT organization, store, lineage, 5, '00000000-0000-8000-8000-000000000000', true, false, false
                FROM purchases WHERE original_transaction_id = 'T1'
                """)
            try await store.withConnection { other in
                let removed = try await Self.compact(before: 100, other)
                #expect(removed == 7)
            }
            try await writer.execute("COMMIT")
            #expect(try await Self.compact(before: 100, writer) == 5)
            #expect(
                try await writer.count(
                    "purchase_owner_writes AS w JOIN purchases USING (organization, store, lineage)"
                        + " WHERE original_transaction_id = 'T1'") == 5)
        }
    }
}
