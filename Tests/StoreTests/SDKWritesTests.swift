import Postgres
import Store
import TestSupport
import Testing
import Wire

@Suite struct SDKWritesTests {
    @Test func aRedeliveredBatchWritesNoRowVersion() async throws {
        try await withStore { connection in
            let writes = [
                identify("u", at: 10, platform: "ios", attributes: [("a", "1"), ("b", nil)], reason: "pending"),
                attribute("u", "T1", at: 11, product: "p", facts: SampleWrite.facts("1", of: "T1"), attested: true),
                attribute("v", "T1", at: 12), attribute("v", "token", at: 13, store: .playStore, product: "q"),
            ]
            let versions = """
                (SELECT 'c', ctid::text, xmin::text FROM customers UNION ALL
                SELECT 'p', ctid::text, xmin::text FROM purchases UNION ALL
                SELECT 'w', ctid::text, xmin::text FROM purchase_owner_writes UNION ALL
                SELECT 't', ctid::text, xmin::text FROM transactions) AS v(t, c, x)
                """
            let first = try await SDKWrites.apply(writes, connection)
            #expect(first.customers == 2)
            #expect(first.purchases == 2)
            #expect(first.ownerWrites == 3)
            #expect(first.transactions == 1)
            let sql = "SELECT string_agg(t || c || ' ' || x, ',' ORDER BY t, c) AS all FROM \(versions)"
            let before = try await connection.query(sql).first?.string("all")
            for batch in [writes, writes.reversed(), [writes[0]], [writes[2], writes[1]]] {
                let report = try await SDKWrites.apply(batch, connection)
                #expect(report == ApplyReport())
            }
            let after = try await connection.query(sql).first?.string("all")
            #expect(before == after)
        }
    }

    @Test func anEmptyBatchDoesNothing() async throws {
        try await withStore { connection in
            let report = try await SDKWrites.apply([], connection)
            #expect(report == ApplyReport())
        }
    }

    @Test func aPlayTokenLargerThanAnIndexRowIsStoredAndFound() async throws {
        try await withStore { connection in
            var generator = SeededGenerator(seed: 7)
            var token = ""
            while token.utf8.count < 4096 { token += String(generator.next(), radix: 36) }
            token = String(token.prefix(4096))
            _ = try await SDKWrites.apply([attribute("u", token, at: 1, store: .playStore)], connection)
            let found = try await Purchases.show(
                organization: "o", originalTransactionID: token, nowMicroseconds: 2, connection)
            #expect(found?.originalTransactionID == token)
            #expect(found?.store == "play_store")
        }
    }

    @Test func aJWSOfAnotherPurchaseLinksOnlyTheSignedOne() async throws {
        try await withStore { connection in
            let report = try await SDKWrites.apply(
                [attribute("u", "T1", at: 5, product: "claimed", facts: SampleWrite.facts("9", of: "T9"))], connection)
            #expect(report.lineageMismatches == 1)
            let claimed = try await Purchases.show(
                organization: "o", originalTransactionID: "T1", nowMicroseconds: 6, connection)
            #expect(claimed == nil)
            let signed = try await Purchases.show(
                organization: "o", originalTransactionID: "T9", nowMicroseconds: 6, connection)
            #expect(signed?.owner == "u")
            #expect(signed?.productID == "com.example.pro")
        }
    }

    @Test func evidenceThatWasRefusedOrNotLookedAtProvesNothing() async throws {
        try await withStore { connection in
            for (index, evidence) in [
                AttributeWrite.Evidence.refused(reason: "bad_signature"), .unverified(jws: "a.b.c"), .none,
            ].enumerated() {
                let write = AttributeWrite(
                    appUserID: "u", bundleID: "com.example.app", store: .appStore,
                    originalTransactionID: "T\(index)", evidence: evidence)
                _ = try await SDKWrites.apply(
                    [StampedWrite(organization: "o", stamp: 1, content: .attribute(write))], connection)
                let purchase = try await Purchases.show(
                    organization: "o", originalTransactionID: "T\(index)", nowMicroseconds: 2, connection)
                #expect(purchase?.verified == false)
            }
        }
    }

    @Test func aWriteThatPostgresCannotHoldIsPermanentAndTakesItsBatchAlong() async throws {
        try await withStore { connection in
            let error = await failure { () async throws(PostgresError) in
                _ = try await SDKWrites.apply(
                    [identify("fine", at: 1), identify("bad", at: 2, attributes: [("a\0b", "1")])], connection)
            }
            #expect(error?.outcome == .permanent)
            let rows = try await connection.count("customers")
            #expect(rows == 0)
            let tooLate = await failure { () async throws(PostgresError) in
                _ = try await SDKWrites.apply([identify("u", at: 1 << 53)], connection)
            }
            #expect(tooLate?.sqlstate == "23514")
        }
    }

    @Test func writersOfReversedBatchesNeverDeadlock() async throws {
        let store = try await TestStore.make()
        let writes = (0..<300).flatMap { index in
            [identify("u\(index)", at: Int64(index)), attribute("u\(index)", "T\(index % 100)", at: Int64(index + 1))]
        }
        try await withThrowingTaskGroup(of: Void.self) { group in
            for writer in 0..<4 {
                group.addTask {
                    try await store.withConnection { connection in
                        for round in 0..<8 {
                            // Newer stamps each round, so that every row is locked and written.
                            let batch = writes.map { write in
                                var write = write
                                write.stamp += Int64(1000 * round + writer)
                                return write
                            }
                            _ = try await SDKWrites.apply(writer % 2 == 0 ? batch : batch.reversed(), connection)
                        }
                    }
                }
            }
            try await group.waitForAll()
        }
        let rows = try await store.withConnection { try await $0.count("customers") }
        #expect(rows == 300)
    }

    @Test func attributesAreCutToTheNewest256AndCounted() async throws {
        try await withStore { connection in
            let first = (0..<200).map { (String(format3($0)), "1" as String?) }
            let second = (100..<350).map { (String(format3($0)), "2" as String?) }
            let one = try await SDKWrites.apply([identify("u", at: 1, attributes: first)], connection)
            #expect(one.attributesCut == 0)
            let two = try await SDKWrites.apply([identify("u", at: 2, attributes: second)], connection)
            #expect(two.attributesCut == 1)
            let customer = try await Customers.show(
                organization: "o", appUserID: "u", nowMicroseconds: 3, connection)
            #expect(customer?.attributes.count == 256)
            // 250 of stamp 2 and, of stamp 1, the six greatest keys.
            #expect(customer?.attributes.first?.key == "094")
        }
    }

    @Test func attributeKeysThatLookAlikeAreNotEqual() async throws {
        try await withStore { connection in
            _ = try await SDKWrites.apply(
                [
                    identify(
                        "u", at: 1,
                        attributes: [
                            ("\u{e9}", "1"), ("e\u{301}", "2"), ("__proto__", "3"), ("\u{1}\"\\", "\"\\u0001\""),
                        ])
                ], connection)
            let customer = try await Customers.show(
                organization: "o", appUserID: "u", nowMicroseconds: 3, connection)
            #expect(customer?.attributes.map(\.value) == ["\"\\u0001\"", "3", "2", "1"])
            // Users whose ids look alike are two users, too.
            _ = try await SDKWrites.apply([identify("\u{e9}", at: 1), identify("e\u{301}", at: 2)], connection)
            let rows = try await connection.count("customers")
            #expect(rows == 3)
        }
    }

    @Test func parallelFirstIdentifiesMakeOneCustomer() async throws {
        // cases/store.md 50
        let store = try await TestStore.make()
        try await withThrowingTaskGroup(of: Void.self) { group in
            for index in 0..<10 {
                group.addTask {
                    try await store.withConnection { connection in
                        for round in 0..<5 {
                            _ = try await SDKWrites.apply([identify("new", at: Int64(index * 5 + round))], connection)
                        }
                    }
                }
            }
            try await group.waitForAll()
        }
        let rows = try await store.withConnection { try await $0.count("customers") }
        #expect(rows == 1)
    }

    @Test func parallelAttributesOfOneTransactionMakeOnePurchase() async throws {
        // cases/store.md 46
        let store = try await TestStore.make()
        try await withThrowingTaskGroup(of: Void.self) { group in
            for index in 0..<10 {
                group.addTask {
                    try await store.withConnection { connection in
                        for round in 0..<10 {
                            _ = try await SDKWrites.apply(
                                [
                                    attribute(
                                        "u\(index)", "T1", at: Int64(round), facts: SampleWrite.facts("1", of: "T1"))
                                ],
                                connection)
                        }
                    }
                }
            }
            try await group.waitForAll()
        }
        try await store.withConnection { connection in
            let purchases = try await connection.count("purchases")
            let transactions = try await connection.count("transactions")
            let writes = try await connection.count("purchase_owner_writes")
            #expect([purchases, transactions, writes] == [1, 1, 100])
        }
    }

    @Test func aRevocationSurvivesAnOlderReceipt() async throws {
        // cases/sdk.md 51: the link stays, the purchase is shown as revoked.
        try await withStore { connection in
            let bought = SampleWrite.facts("1", of: "T1", signed: 1_000, expires: 9_000)
            let revoked = SampleWrite.facts("1", of: "T1", signed: 2_000, expires: 9_000, revoked: 1_500, digest: "aa")
            for (stamp, receipt) in [(1, bought), (2, revoked), (3, bought)] {
                _ = try await SDKWrites.apply(
                    [attribute("u", "T1", at: Int64(stamp), facts: receipt)], connection)
            }
            let purchase = try await Purchases.show(
                organization: "o", originalTransactionID: "T1", nowMicroseconds: 4, connection)
            #expect(purchase?.owner == "u")
            #expect(purchase?.revoked == true)
            #expect(purchase?.revokedAt == 1_500)
        }
    }

    @Test func theCurrentTransactionIsTheNewestThatIsNotRevoked() async throws {
        try await withStore { connection in
            _ = try await SDKWrites.apply(
                [
                    attribute(
                        "u", "T1", at: 1, product: "raw",
                        facts: SampleWrite.facts("1", of: "T1", product: "first", purchased: 100, expires: 200)),
                    attribute(
                        "u", "T1", at: 2,
                        facts: SampleWrite.facts("2", of: "T1", product: "second", purchased: 200, expires: 300)),
                    attribute(
                        "u", "T1", at: 3,
                        facts: SampleWrite.facts(
                            "3", of: "T1", product: "third", purchased: 300, expires: 400, revoked: 350)),
                    // Signed last of all, and still the oldest purchase.
                    attribute(
                        "u", "T1", at: 4, product: "raw2",
                        facts: SampleWrite.facts(
                            "1", of: "T1", signed: 9_999, product: "first", purchased: 100, expires: 200)),
                ], connection)
            let purchase = try await Purchases.show(
                organization: "o", originalTransactionID: "T1", nowMicroseconds: 5, connection)
            #expect(purchase?.productID == "second")
            #expect(purchase?.expiresAt == 300)
            #expect(purchase?.revoked == false)
        }
    }
}

private func format3(_ number: Int) -> String {
    let text = String(number)
    return String(repeating: "0", count: 3 - text.count) + text
}
