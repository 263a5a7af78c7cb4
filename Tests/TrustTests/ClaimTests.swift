import TestSupport
import Testing
import Wire

@testable import Trust

/// Payloads that were signed well and say something odd.
@Suite struct ClaimTests {
    let bench: Bench
    let base = TestPKITransaction()

    init() throws { bench = try Bench() }

    private func reason(_ name: String, _ text: String?) -> Refusal.Reason? {
        bench.verdict(ofPayload: base.json(replacing: name, with: text)).reason
    }

    @Test func aFullTransactionBecomesFacts() throws {
        let full = base.with {
            $0.revocationDate = 1_751_414_400_000
            $0.revocationReason = 1
            $0.price = 5_000_000_000
            $0.appAccountToken = "88207fd1-7189-48f0-b032-7498f458747c"
            $0.ownership = "FAMILY_SHARED"
            $0.extra = [("isUpgraded", "true")]
        }
        let facts = try #require(bench.verdict(of: bench.pki.sign(full)).facts)
        #expect(
            facts
                == TransactionFacts(
                    transactionID: "2000000000000001", originalTransactionID: "2000000000000001",
                    bundleID: "com.example.app", productID: "com.example.app.pro.annual", environment: "Production",
                    purchaseDate: 1_751_328_000_000, originalPurchaseDate: 1_751_328_000_000,
                    expiresDate: 1_782_864_000_000, signedDate: 1_751_328_001_000,
                    type: "Auto-Renewable Subscription", ownership: "FAMILY_SHARED",
                    revocationDate: 1_751_414_400_000, revocationReason: 1, isUpgraded: true, price: 5_000_000_000,
                    currency: "USD", storefront: "USA", appAccountToken: "88207fd1-7189-48f0-b032-7498f458747c",
                    quantity: 1, payloadDigest: facts.payloadDigest))
        #expect(facts.payloadDigest.utf8.count == 64)
    }

    @Test func claimsThatATransactionMayLackAreNil() throws {
        let payload = """
            {"transactionId":"1","originalTransactionId":"1","bundleId":"com.example.app","productId":"p",\
            "purchaseDate":1751328000000,"signedDate":1751328001000,"environment":"Sandbox"}
            """
        let facts = try #require(bench.verdict(ofPayload: payload).facts)
        #expect(facts.expiresDate == nil && facts.type == nil && facts.price == nil && facts.isUpgraded == nil)
        for name in ["originalPurchaseDate", "expiresDate", "type", "price", "currency", "storefront"] {
            #expect(reason(name, nil) == nil)
            #expect(reason(name, "null") == nil)
        }
    }

    @Test func whatNobodyKnowsIsAccepted() {
        let transaction = base.with {
            $0.type = "Brand New Type"
            $0.ownership = "BORROWED"
            $0.extra = [("offerType", "99"), ("newClaim", "{\"a\":[1,{\"b\":null}]}"), ("revocationType", "\"X\"")]
        }
        let facts = bench.verdict(of: bench.pki.sign(transaction)).facts
        #expect(facts?.type == "Brand New Type" && facts?.ownership == "BORROWED")
    }

    @Test func datesAreIntegersOfSaneMilliseconds() {
        let odd = [
            "\"1751328000000\"", "1751328000000.5", "1751328000000.0", "1.751328e12", "true", "-1",
            "99999999999999999999999999999999", "9223372036854775807", "9223372036854775808", "253402300800000",
            "[]", "{}",
        ]
        for name in ["signedDate", "purchaseDate", "originalPurchaseDate", "expiresDate"] {
            for text in odd { #expect(reason(name, text) == .badClaim, "\(name) \(text)") }
        }
        for text in odd {
            let transaction = base.with { $0.extra = [("revocationDate", text)] }
            #expect(bench.verdict(of: bench.pki.sign(transaction)).reason == .badClaim)
        }
        #expect(reason("signedDate", nil) == .badClaim)
        #expect(reason("signedDate", "null") == .badClaim)
        // Seconds are a date in January 1970, before any certificate.
        #expect(reason("signedDate", "1751328001") == .expiredChain)
        #expect(reason("expiresDate", "253402300799999") == nil)
    }

    @Test func signedDateMayLieADayAheadAndNoMore() {
        let signed = base.signedDate
        let jws = bench.pki.sign(base)
        #expect(bench.verdict(of: jws, now: signed).facts != nil)
        #expect(bench.verdict(of: jws, now: signed - 86_400_000).facts != nil)
        #expect(bench.verdict(of: jws, now: signed - 86_400_001).reason == .signedInFuture)
        #expect(bench.verdict(of: jws, now: .min).reason == .signedInFuture)
        #expect(bench.verdict(of: jws, now: .max).facts != nil)
    }

    @Test func identifiersAreTexts() {
        for name in ["transactionId", "originalTransactionId", "bundleId", "productId"] {
            for text in [nil, "null", "2000000000000001", "99999999999999999999999", "[]", "{}", "true", "\"\""] {
                #expect(reason(name, text) == .notATransaction, "\(name) \(text ?? "absent")")
            }
        }
        #expect(reason("purchaseDate", nil) == .notATransaction)
    }

    @Test func otherClaimsHaveTheirTypes() {
        for (name, texts) in [
            "type": ["1", "[]", "true"], "inAppOwnershipType": ["1", "{}"], "storefront": ["840"],
            "currency": ["false"], "price": ["\"990\"", "9.99", "true", "1e3", "9223372036854775808"],
            "quantity": ["\"1\"", "1.0", "true"], "environment": ["1", "[]"],
        ] {
            for text in texts { #expect(reason(name, text) == .badClaim, "\(name) \(text)") }
        }
        for extra in [("isUpgraded", "1"), ("isUpgraded", "\"true\""), ("revocationReason", "true")] {
            #expect(bench.verdict(of: bench.pki.sign(base.with { $0.extra = [extra] })).reason == .badClaim)
        }
        #expect(reason("price", "-9223372036854775808") == nil)
    }

    @Test func otherThingsThatAppleSignsAreNoTransactions() {
        let renewal = """
            {"originalTransactionId":"1","autoRenewProductId":"p","productId":"p","autoRenewStatus":1,\
            "environment":"Production","signedDate":1751328001000,"recentSubscriptionStartDate":1751328000000}
            """
        let notification = """
            {"notificationType":"TEST","notificationUUID":"u","data":{"bundleId":"com.example.app",\
            "environment":"Production"},"version":"2.0","signedDate":1751328001000}
            """
        #expect(bench.verdict(ofPayload: renewal).reason == .notATransaction)
        #expect(bench.verdict(ofPayload: notification).reason == .notATransaction)
        let application = """
            {"receiptType":"Production","bundleId":"com.example.app","applicationVersion":"1",\
            "receiptCreationDate":1751328001000,"originalPurchaseDate":1751328000000}
            """
        #expect(bench.verdict(ofPayload: application).reason == .badClaim)
    }

    @Test func theBundleIsComparedByteForByte() {
        func reason(bundle: String, expected: String) -> Refusal.Reason? {
            bench.verdict(of: bench.pki.sign(base.with { $0.bundleID = bundle }), bundleID: expected).reason
        }
        let (composed, decomposed) = ("com.ex\u{e4}mple.app", "com.exa\u{308}mple.app")
        #expect(composed == decomposed)
        #expect(reason(bundle: decomposed, expected: composed) == .bundleMismatch)
        #expect(reason(bundle: composed, expected: decomposed) == .bundleMismatch)
        #expect(reason(bundle: composed, expected: composed) == nil)
        for bundle in ["com.Example.app", "com.example.app ", "com.example.ap", "com.example.app.x", "\u{3bf}"] {
            #expect(reason(bundle: bundle, expected: "com.example.app") == .bundleMismatch)
        }
        #expect(bench.verdict(of: bench.pki.sign(base.with { $0.bundleID = "b" }), bundleID: nil).facts != nil)
    }

    @Test func onlyNamedEnvironmentsAreAccepted() {
        func reason(_ environment: String?, _ accepted: Set<String>?) -> Refusal.Reason? {
            bench.verdict(
                of: bench.pki.sign(base.with { $0.environment = environment }), environments: accepted
            ).reason
        }
        let both = TransactionExpectation.appStoreEnvironments
        #expect(reason("Production", both) == nil)
        #expect(reason("Sandbox", both) == nil)
        #expect(reason("Sandbox", ["Production"]) == .wrongEnvironment)
        // The Kelvin sign is canonically equal to K.
        #expect(reason("\u{212a}", ["K"]) == .wrongEnvironment)
        for environment in ["Xcode", "LocalTesting", "production", "", "Sandbox "] {
            #expect(reason(environment, both) == .wrongEnvironment)
        }
        #expect(reason(nil, both) == .wrongEnvironment)
        #expect(reason("Production", []) == .wrongEnvironment)
        let unchecked = bench.verdict(of: bench.pki.sign(base.with { $0.environment = nil }), environments: nil)
        #expect(unchecked.facts?.environment == "")
    }

    @Test func thePayloadIsOneStrictObject() {
        let deep = String(repeating: "[", count: 5000) + String(repeating: "]", count: 5000)
        for payload in [
            "[]", "null", "1", "\"text\"", "{", base.json + "x", base.json + base.json, "{\"a\":1,}",
            base.with { $0.extra = [("bundleId", "\"com.example.app\"")] }.json,
            base.with { $0.extra = [("unknown", "{\"a\":1,\"a\":1}")] }.json,
            base.with { $0.extra = [("deep", deep)] }.json,
            base.json(replacing: "productId", with: "\"a\\u0000b\""),
            base.json(replacing: "productId", with: "\"\\ud800\""),
            base.json(replacing: "productId", with: "\"a\nb\""),
            base.json(replacing: "price", with: "0x10"), base.json(replacing: "price", with: "NaN"),
        ] {
            #expect(bench.verdict(ofPayload: payload).reason == .malformedJSON, "\(payload.prefix(30))")
        }
        let invalid = Array(base.json.utf8) + [0xff]
        #expect(
            bench.verdict(of: TestPKI.jws(header: bench.header, payload: invalid, key: bench.pki.leaf.key)).reason
                == .malformedJSON)
        // A name that is escaped differently is the same name.
        let escaped = base.with { $0.extra = [("bundle\\u0049d", "\"com.example.other\"")] }
        #expect(bench.verdict(of: bench.pki.sign(escaped)).reason == .malformedJSON)
    }
}
