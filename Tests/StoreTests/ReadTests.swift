import Postgres
import Store
import TestSupport
import Testing
import Wire

/// Cases of cases/sdk.md at the level of the store, and the rules of what is shown.
@Suite struct ReadTests {
    private static let hour: Int64 = 3_600_000_000
    private static let now: Int64 = 1_795_996_800_000_000

    private func show(_ id: String, _ connection: PostgresConnection) async throws -> PurchaseRecord {
        try #require(
            try await Purchases.show(
                organization: "o", originalTransactionID: id, nowMicroseconds: Self.now, connection))
    }

    private func customer(_ id: String, _ connection: PostgresConnection) async throws -> CustomerRecord {
        try #require(
            try await Customers.show(organization: "o", appUserID: id, nowMicroseconds: Self.now, connection))
    }

    @Test func anAnonymousTakeoverIsARowOfHistoryAndCanBeUndone() async throws {
        // cases/sdk.md 1
        try await withStore { connection in
            let now = Self.now
            _ = try await SDKWrites.apply(
                [
                    attribute("user_42", "T1", at: now - 10, facts: SampleWrite.facts("1", of: "T1"), attested: true),
                    attribute("$anon_x", "T1", at: now - 5),
                ], connection)
            let taken = try await show("T1", connection)
            #expect(taken.owner == "$anon_x")
            #expect(taken.contested)
            #expect(taken.verified, "the proof of the transaction stays")
            let moves = try await Purchases.history(of: taken, connection)
            #expect(
                moves == [
                    PurchaseMove.make(nil, "user_42", now - 10, attested: true, jws: true),
                    PurchaseMove.make("user_42", "$anon_x", now - 5, contested: true),
                ])
            let thief = try await customer("$anon_x", connection)
            #expect(!thief.verified)
            #expect(thief.purchases.map(\.originalTransactionID) == ["T1"])
            let robbed = try await customer("user_42", connection)
            #expect(robbed.purchases.isEmpty)
            #expect(robbed.verified, "its own attested write proves it")

            let undone = try await Purchases.move(
                organization: "o", originalTransactionID: "T1", to: "user_42", actor: "ops", nowMicroseconds: now - 7,
                connection)
            #expect(undone == .moved(from: "$anon_x", stamp: now - 4), "later than every write, whatever the clock")
            let back = try await show("T1", connection)
            #expect(back.owner == "user_42")
            #expect(!back.contested)
            let history = try await Purchases.history(of: back, connection)
            #expect(history.last == PurchaseMove.make("$anon_x", "user_42", now - 4, operator: true))
            let audit = try await AuditLog.list(organization: "o", connection)
            #expect(audit.map(\.action) == ["purchase.move"])
            #expect(audit.first?.detail.contains("\"from\": \"$anon_x\"") == true)
        }
    }

    @Test func aMoveByHandNamesKnownThings() async throws {
        try await withStore { connection in
            _ = try await SDKWrites.apply([attribute("a", "T1", at: 1)], connection)
            let noPurchase = try await Purchases.move(
                organization: "o", originalTransactionID: "T2", to: "a", actor: "ops", nowMicroseconds: 2, connection)
            #expect(noPurchase == .purchaseNotFound)
            let noCustomer = try await Purchases.move(
                organization: "o", originalTransactionID: "T1", to: "b", actor: "ops", nowMicroseconds: 2, connection)
            #expect(noCustomer == .customerNotFound)
            let foreign = try await Purchases.move(
                organization: "p", originalTransactionID: "T1", to: "a", actor: "ops", nowMicroseconds: 2, connection)
            #expect(foreign == .purchaseNotFound)
            let audit = try await AuditLog.list(organization: "o", connection)
            #expect(audit.isEmpty)
        }
    }

    @Test func aReinstallUnderAnotherUserMovesAndShowsThePreviousOwner() async throws {
        // cases/sdk.md 2
        try await withStore { connection in
            let now = Self.now
            for (index, user) in ["a", "$anon2", "b"].enumerated() {
                _ = try await SDKWrites.apply(
                    [
                        identify(user, at: now + Int64(2 * index)),
                        attribute(user, "T1", at: now + Int64(2 * index + 1), facts: SampleWrite.facts("1", of: "T1")),
                    ], connection)
            }
            let purchase = try await show("T1", connection)
            #expect(purchase.owner == "b")
            #expect(!purchase.contested, "the mover brought the signed transaction")
            let moves = try await Purchases.history(of: purchase, connection)
            #expect(moves.map(\.from) == [nil, "a", "$anon2"])
            #expect(moves.map(\.to) == ["a", "$anon2", "b"])
        }
    }

    @Test func fiveUsersInAMinuteFlap() async throws {
        // cases/sdk.md 5
        try await withStore { connection in
            let start = Self.now - 60_000_000
            for index in 0..<5 {
                _ = try await SDKWrites.apply(
                    [attribute("u\(index)", "T1", at: start + Int64(index))], connection)
                let flapping = try await show("T1", connection).flapping
                #expect(flapping == (index >= 3), "three moves, not three links")
            }
            // The same moves, looked at two days later.
            let later = try await Purchases.show(
                organization: "o", originalTransactionID: "T1", nowMicroseconds: Self.now + 48 * Self.hour, connection)
            #expect(later?.flapping == false)
        }
    }

    @Test func aUserOwnsOnlyWhatItPosted() async throws {
        // cases/sdk.md 6
        try await withStore { connection in
            _ = try await SDKWrites.apply(
                [identify("a", at: 1), attribute("a", "T1", at: 2), identify("b", at: 3)], connection)
            let other = try await customer("b", connection)
            #expect(other.purchases.isEmpty)
            let owner = try await customer("a", connection)
            #expect(owner.purchases.map(\.originalTransactionID) == ["T1"])
        }
    }

    @Test func thePlatformMakesNoDifference() async throws {
        // cases/sdk.md 10
        try await withStore { connection in
            for (index, platform) in ["ios", "android", nil].enumerated() {
                let anonymous = "$anon_\(index)"
                let user = "user_\(index)"
                let base = Int64(index * 10)
                _ = try await SDKWrites.apply(
                    [
                        identify(anonymous, at: base + 1, platform: platform),
                        attribute(anonymous, "T\(index)", at: base + 2),
                        identify(user, at: base + 3, platform: platform),
                        attribute(user, "T\(index)", at: base + 4),
                    ], connection)
                let owner = try await customer(user, connection)
                #expect(owner.purchases.map(\.originalTransactionID) == ["T\(index)"])
                #expect(owner.platform == platform)
                let before = try await customer(anonymous, connection)
                #expect(before.purchases.isEmpty)
            }
        }
    }

    @Test func attributesNeverCrossUsers() async throws {
        // cases/sdk.md 20
        try await withStore { connection in
            _ = try await SDKWrites.apply(
                [
                    identify("$anon", at: 1, attributes: [("a", "1")]), identify("u", at: 2),
                    attribute("$anon", "T1", at: 3), attribute("u", "T1", at: 4),
                ], connection)
            let user = try await customer("u", connection)
            #expect(user.attributes.isEmpty)
            let anonymous = try await customer("$anon", connection)
            #expect(anonymous.attributes == [.init(key: "a", value: "1")])
        }
    }

    @Test func attributesMergeByStampAndNullDeletes() async throws {
        try await withStore { connection in
            _ = try await SDKWrites.apply(
                [identify("u", at: 5, attributes: [("plan", "\"pro\""), ("n", "1e5"), ("gone", "true")])], connection)
            // Late: an older write changes nothing it does not own.
            _ = try await SDKWrites.apply(
                [identify("u", at: 4, attributes: [("plan", "\"free\""), ("old", "-0")])], connection)
            _ = try await SDKWrites.apply([identify("u", at: 6, attributes: [("gone", nil)])], connection)
            _ = try await SDKWrites.apply([identify("u", at: 5, attributes: [("gone", "\"back\"")])], connection)
            let user = try await customer("u", connection)
            #expect(
                user.attributes == [
                    .init(key: "n", value: "1e5"), .init(key: "old", value: "-0"), .init(key: "plan", value: "\"pro\""),
                ])
            #expect(user.firstSeenAt == 4)
            #expect(user.lastSeenAt == 6)
        }
    }

    @Test func aLaterRawPostKeepsTheProofAndTheSignedFields() async throws {
        try await withStore { connection in
            _ = try await SDKWrites.apply(
                [
                    attribute(
                        "u", "T1", at: 1, product: "raw", facts: SampleWrite.facts("1", of: "T1", product: "signed"))
                ],
                connection)
            _ = try await SDKWrites.apply([attribute("u", "T1", at: 2, product: "claimed")], connection)
            let purchase = try await show("T1", connection)
            #expect(purchase.jwsVerified)
            #expect(!purchase.attested)
            #expect(purchase.productID == "signed")
            #expect(purchase.environment == "Production")
            let user = try await customer("u", connection)
            #expect(user.verified, "an owner write of this customer carried proof")
            #expect(!user.attested)
        }
    }

    @Test func aRawPostOfAKnownIdMakesNobodyVerified() async throws {
        try await withStore { connection in
            _ = try await SDKWrites.apply(
                [
                    attribute("owner", "T1", at: 1, facts: SampleWrite.facts("1", of: "T1")),
                    attribute("thief", "T1", at: 2), identify("thief", at: 3, reason: "simulator"),
                ], connection)
            let thief = try await customer("thief", connection)
            #expect(!thief.verified)
            #expect(thief.lastWrite == .init(attested: false, at: 3, reason: "simulator"))
            // The owner's proof was for a purchase it owns no more, and it never was attested.
            let owner = try await customer("owner", connection)
            #expect(!owner.verified)
        }
    }

    @Test func organizationsDoNotSeeEachOther() async throws {
        try await withStore { connection in
            _ = try await SDKWrites.apply(
                [attribute("u", "T1", at: 1), attribute("u", "T1", at: 2, organization: "p", attested: true)],
                connection)
            let ours = try await show("T1", connection)
            #expect(!ours.verified)
            let us = try await customer("u", connection)
            #expect(!us.verified)
            #expect(us.purchases.count == 1)
            let nobody = try await Customers.show(
                organization: "q", appUserID: "u", nowMicroseconds: 3, connection)
            #expect(nobody == nil)
        }
    }

    @Test func oneIdInBothStoresIsTwoPurchases() async throws {
        try await withStore { connection in
            _ = try await SDKWrites.apply(
                [attribute("a", "X", at: 1), attribute("p", "X", at: 2, store: .playStore)], connection)
            let any = try await show("X", connection)
            #expect(any.owner == "a")
            let play = try await Purchases.show(
                organization: "o", originalTransactionID: "X", store: .playStore, nowMicroseconds: 3, connection)
            #expect(play?.owner == "p")
        }
    }
}

extension PurchaseMove {
    /// Compared through text, since the record has no initializer for others.
    static func make(
        _ from: String?, _ to: String, _ at: Int64, attested: Bool = false, jws: Bool = false,
        operator: Bool = false, contested: Bool = false
    ) -> PurchaseMove {
        PurchaseMove(
            from: from, to: to, at: at, attested: attested, jws: jws, operator: `operator`, contested: contested)
    }
}
