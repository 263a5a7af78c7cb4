import JSON
import Testing
import Wire

@Suite struct AttributeValidationTests {
    private func body(_ id: String, _ rest: String = "") -> String {
        #"{"appUserId":"u","bundleId":"com.example.app","originalTransactionId":"# + id + rest + "}"
    }

    private let jws = "eyJhbGciOiJFUzI1NiJ9.eyJhIjoxfQ.c2lnbmF0dXJl"

    @Test func theDocumentedBodyIsTakenFieldByField() throws {
        let validated = try attribute(Fixture.attribute)
        #expect(
            validated.write
                == AttributeWrite(
                    appUserID: "user_42", bundleID: "com.example.app", store: .appStore,
                    originalTransactionID: "2000000123456789", productID: "com.example.app.pro.monthly",
                    evidence: .unverified(jws: jws)))
        #expect(validated.ignoredFields == [])
    }

    @Test func theFirstFaultIsToldInADocumentedOrder() {
        #expect(attributeRefusal("[]") == "malformed_json")
        #expect(attributeRefusal("{}") == "missing_field appUserId")
        #expect(attributeRefusal(#"{"appUserId":1}"#) == "missing_field bundleId")
        #expect(attributeRefusal(#"{"appUserId":1,"bundleId":1}"#) == "missing_field originalTransactionId")
        #expect(
            attributeRefusal(#"{"appUserId":1,"bundleId":1,"originalTransactionId":1}"#) == "invalid_field appUserId")
        #expect(
            attributeRefusal(#"{"appUserId":"u","bundleId":1,"originalTransactionId":1}"#) == "invalid_field bundleId")
        #expect(attributeRefusal(body("1")) == "invalid_field originalTransactionId", "a number would lose digits")
    }

    @Test func anOriginalTransactionIDHas1To4096Bytes() {
        #expect(attributeRefusal(body(#""""#)) == "invalid_field originalTransactionId")
        #expect(attributeRefusal(body("\"\(String(repeating: "t", count: 4096))\"")) == nil)
        #expect(
            attributeRefusal(body("\"\(String(repeating: "t", count: 4097))\""))
                == "invalid_field originalTransactionId")
    }

    @Test func anOriginalTransactionIDHoldsNoWhiteSpaceOrControl() throws {
        for wrong in [" ", "a b", "a\t", "\n", "a\u{7f}", "a\u{85}", "a\u{a0}b", "a\u{2003}", "\u{9f}"] {
            #expect(attributeRefusal(body(Fixture.quoted(wrong))) == "invalid_field originalTransactionId")
        }
        for fine in ["GPA.3312-4512", "ab.AO-J1O_x", "ü", "a\u{200b}"] {
            #expect(try attribute(body(Fixture.quoted(fine))).write.originalTransactionID == fine)
        }
    }

    @Test func anUnusableJWSIsIgnoredAndCounted() throws {
        let part = String(repeating: "a", count: 4)
        for wrong in [
            "", "a", "..", "\(part).\(part)", "\(part).\(part).", ".\(part).\(part)", "\(part)..\(part)",
            "\(part).\(part).\(part).\(part)", "\(part).\(part).a+b/", "\(part).\(part).YQ==", "\(part). .\(part)",
            "\(part).\(part).é", "aaaaa.\(part).\(part)",
        ] {
            let validated = try attribute(body("\"1\"", #","jws":"# + Fixture.quoted(wrong)))
            #expect(validated.write.evidence == .none, "\(wrong)")
            #expect(validated.ignoredFields == [.jws])
        }
        for wrong in ["1", "{}", "[\"\(jws)\"]", "true"] {
            #expect(try attribute(body("\"1\"", #","jws":"# + wrong)).ignoredFields == [.jws])
        }
        let absent = try attribute(body("\"1\"", #","jws":null"#))
        #expect(absent.write.evidence == .none)
        #expect(absent.ignoredFields == [])
    }

    @Test func aJWSHasAtMost16KiB() throws {
        // 4 + 1 + 4 + 1 leave 16,374; one character more in the last part is past the limit.
        let fitting = "aaaa.bbbb." + String(repeating: "c", count: 16_374)
        #expect(fitting.utf8.count == 16_384)
        #expect(try attribute(body("\"1\"", ",\"jws\":\"\(fitting)\"")).write.evidence == .unverified(jws: fitting))
        let over = "aaaa.bbbbb7." + String(repeating: "c", count: 16_373)
        #expect(over.utf8.count == 16_385)
        #expect(try attribute(body("\"1\"", ",\"jws\":\"\(over)\"")).ignoredFields == [.jws])
    }

    @Test func aForeignlySignedOrForgedJWSIsTheVerifiersBusiness() throws {
        // Signed by Xcode, `alg` none with some signature, made by a root of one's own: all have three parts.
        for forged in ["eyJhbGciOiJub25lIn0.eyJhIjoxfQ.AAAA", jws] {
            #expect(try attribute(body("\"1\"", ",\"jws\":\"\(forged)\"")).write.evidence == .unverified(jws: forged))
        }
    }

    @Test func aProductIDHasAtMost255Bytes() throws {
        for count in [1, 255] {
            let id = String(repeating: "p", count: count)
            #expect(try attribute(body("\"1\"", ",\"productId\":\"\(id)\"")).write.productID == id)
        }
        for wrong in ["\"\(String(repeating: "p", count: 256))\"", "\"\"", "7", "[]"] {
            let validated = try attribute(body("\"1\"", ",\"productId\":\(wrong)"))
            #expect(validated.write.productID == nil)
            #expect(validated.ignoredFields == [.productId])
        }
    }

    @Test func theStoreComesFromPlatformThenSignatureThenShape() throws {
        let cases: [(platform: String?, jws: Bool, id: String, store: PurchaseStore)] = [
            ("ios", false, "token.AO-J1", .appStore), ("android", true, "123", .playStore),
            (nil, true, "token.AO-J1", .appStore), (nil, false, "123", .appStore),
            (nil, false, "token.AO-J1", .playStore), ("web", false, "123", .appStore),
            ("web", false, "12a", .playStore), (nil, false, "١٢٣", .playStore),
        ]
        for (platform, hasJWS, id, store) in cases {
            var rest = ""
            if let platform { rest += ",\"platform\":\"\(platform)\"" }
            if hasJWS { rest += ",\"jws\":\"\(jws)\"" }
            #expect(try attribute(body("\"\(id)\"", rest)).write.store == store, "\(rest) \(id)")
        }
        #expect(try attribute(body("\"a\"", #","jws":"x""#)).write.store == .playStore, "an ignored jws is no jws")
    }

    @Test func theSameRuleHoldsForEveryPlatform() throws {
        for platform in [#""ios""#, #""android""#, "null", #""web""#, "3"] {
            let write = try attribute(body("\"1\"", ",\"platform\":\(platform)")).write
            #expect(write.appUserID == "u")
            #expect(write.originalTransactionID == "1")
        }
    }

    @Test func oddUserIDsAreCountedHereToo() throws {
        #expect(try attribute(body("\"1\"").replacing("\"u\"", with: "\"guest\"")).oddities == [.oddUserID])
        #expect(try attribute(body("\"1\"")).oddities == [])
    }
}
