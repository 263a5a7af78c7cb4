import JSON
import TestSupport
import Testing
import Wire

@Suite struct PayloadTests {
    private func text(_ payload: [UInt8]) -> String { String(decoding: payload, as: UTF8.self) }

    private func identifyFault(_ payload: String) -> String? {
        refusal { () throws(WireError) in _ = try IdentifyWrite(payload: Array(payload.utf8)) }
    }

    private func attributeFault(_ payload: String) -> String? {
        refusal { () throws(WireError) in _ = try AttributeWrite(payload: Array(payload.utf8)) }
    }

    private let facts = TransactionFacts(
        transactionID: "2", originalTransactionID: "1", bundleID: "com.example.app", productID: "pro",
        environment: "Sandbox", purchaseDate: 1, signedDate: 2, price: -9990,
        payloadDigest: String(repeating: "0a", count: 32))

    @Test func aPayloadReadsLikeTheRequest() {
        let identify = IdentifyWrite(
            appUserID: "u", bundleID: "b", platform: "ios", locale: "",
            attributes: [.init(key: "a", value: "1e5"), .init(key: "b\"", value: nil)],
            proof: WriteProof(unattestedReason: "pending", addressHash: "0123456789abcdef"))
        #expect(
            text(identify.encodePayload())
                == #"{"appUserId":"u","bundleId":"b","platform":"ios","locale":"","attributes":{"a":1e5,"b\"":null},"#
                + #""proof":{"attested":false,"unattestedReason":"pending","addressHash":"0123456789abcdef"}}"#)
        var attribute = AttributeWrite(
            appUserID: "u", bundleID: "b", store: .playStore, originalTransactionID: "t",
            proof: WriteProof(attested: true, deviceID: "d-1"))
        let start = #"{"appUserId":"u","bundleId":"b","store":"play_store","originalTransactionId":"t""#
        let end = #","proof":{"attested":true,"deviceId":"d-1"}}"#
        #expect(text(attribute.encodePayload()) == start + end)
        attribute.evidence = .refused(reason: "bundle_mismatch")
        #expect(text(attribute.encodePayload()) == start + #","jwsRefused":"bundle_mismatch""# + end)
        attribute.evidence = .unverified(jws: "aa.bb.cc")
        #expect(text(attribute.encodePayload()) == start + #","jws":"aa.bb.cc""# + end)
        attribute.evidence = .verified(facts)
        #expect(
            text(attribute.encodePayload()) == start
                + #","verified":{"transactionId":"2","originalTransactionId":"1","bundleId":"com.example.app","#
                + #""productId":"pro","environment":"Sandbox","purchaseDate":1,"signedDate":2,"price":-9990,"#
                + #""payloadDigest":"\#(String(repeating: "0a", count: 32))"}"# + end)
    }

    @Test func randomWritesSurviveTheQueue() throws {
        var random = RandomWrites(seed: 1)
        let parser = JSONParser()
        for _ in 0..<2000 {
            let identify = random.identify()
            let read = try IdentifyWrite(payload: identify.encodePayload(), using: parser)
            // Swift's == takes canonically equal texts for equal, so the bytes are compared too.
            #expect(read == identify && read.encodePayload() == identify.encodePayload())
            let attribute = random.attribute()
            let readAttribute = try AttributeWrite(payload: attribute.encodePayload(), using: parser)
            #expect(readAttribute == attribute && readAttribute.encodePayload() == attribute.encodePayload())
        }
    }

    @Test func everyFactSurvivesTheQueue() throws {
        var full = facts
        full.originalPurchaseDate = 0
        full.expiresDate = 253_402_300_799_999
        full.type = "Auto-Renewable Subscription"
        full.ownership = "FAMILY_SHARED"
        full.revocationDate = 3
        full.revocationReason = .min
        full.isUpgraded = false
        full.price = .max
        full.currency = "EUR"
        full.storefront = "DEU"
        full.appAccountToken = "7e3fb20b-4cdb-47cc-936d-99d65f608138"
        full.quantity = 1
        let write = AttributeWrite(
            appUserID: "u", bundleID: "b", store: .appStore, originalTransactionID: "1", evidence: .verified(full))
        #expect(try AttributeWrite(payload: write.encodePayload()) == write)
    }

    @Test func anEditedPayloadIsReadStrictly() {
        let good = #"{"appUserId":"u","bundleId":"b","proof":{"attested":false}}"#
        #expect(identifyFault(good) == nil)
        #expect(identifyFault("[]") == "malformed_json")
        #expect(identifyFault(good + "x") == "malformed_json")
        #expect(identifyFault(good.replacing("\"u\"", with: "\"null\"")) == "invalid_field appUserId")
        #expect(identifyFault(good.replacing("\"u\"", with: "7")) == "invalid_field appUserId")
        #expect(identifyFault(good.replacing(#""appUserId":"u","#, with: "")) == "missing_field appUserId")
        #expect(identifyFault(good.replacing("\"b\"", with: "\"-\"")) == "invalid_field bundleId")
        let with = { (member: String) in
            self.identifyFault(good.replacing(#","proof""#, with: "," + member + #","proof""#))
        }
        #expect(with(#""platform":"web""#) == "invalid_field platform")
        #expect(with(#""osVersion":null"#) == "invalid_field osVersion")
        #expect(with(#""locale":"\#(String(repeating: "x", count: 65))""#) == "invalid_field locale")
        #expect(with(#""attributes":{"a":[]}"#) == "attributes_not_flat attributes")
        #expect(with(#""attributes":{"a":1e400}"#) == "invalid_field attributes")
        #expect(with(#""attributes":{"a":1,"a":1}"#) == "invalid_field attributes")
        #expect(with(#""attributes":"# + Fixture.attributes(bytes: 8193)) == "attributes_too_large attributes")
        #expect(with(#""attributes":"# + Fixture.attributes(bytes: 8192)) == nil)
        #expect(with(#""appUserID":"x""#) == "invalid_field", "a slip of the pen is not dropped in silence")
        #expect(with(#""appUserId":"x""#) == "invalid_field")
        #expect(identifyFault(#"{"appUserId":"u","bundleId":"b"}"#) == "missing_field proof")
        let proof = { (proof: String) in self.identifyFault(good.replacing(#"{"attested":false}"#, with: proof)) }
        #expect(proof("{}") == "missing_field proof.attested")
        #expect(proof("true") == "invalid_field proof")
        #expect(proof(#"{"attested":1}"#) == "invalid_field proof.attested")
        #expect(proof(#"{"attested":false,"trusted":true}"#) == "invalid_field proof")
        #expect(proof(#"{"attested":false,"unattestedReason":"lazy"}"#) == "invalid_field proof.unattestedReason")
        #expect(proof(#"{"attested":false,"addressHash":"0123"}"#) == "invalid_field proof.addressHash")
        #expect(proof(#"{"attested":true,"deviceId":"a b"}"#) == "invalid_field proof.deviceId")
        #expect(identifyFault(good + String(repeating: " ", count: 262_144)) == "body_too_large")
    }

    @Test func anEditedAttributePayloadIsReadStrictly() {
        let good = """
            {"appUserId":"u","bundleId":"b","store":"app_store","originalTransactionId":"1","proof":{"attested":false}}
            """
        #expect(attributeFault(good) == nil)
        #expect(attributeFault(good.replacing("app_store", with: "appStore")) == "invalid_field store")
        #expect(attributeFault(good.replacing(#""1""#, with: "1")) == "invalid_field originalTransactionId")
        #expect(attributeFault(good.replacing(#""1""#, with: #""1 2""#)) == "invalid_field originalTransactionId")
        let with = { (member: String) in
            self.attributeFault(good.replacing(#","proof""#, with: "," + member + #","proof""#))
        }
        #expect(with(#""productId":"""#) == "invalid_field productId")
        #expect(with(#""jws":"a""#) == "invalid_field jws")
        #expect(with(#""jws":"aa.aa.aa""#) == nil)
        #expect(with(#""jwsRefused":"Bad Signature""#) == "invalid_field jwsRefused")
        #expect(with(#""jws":"aa.aa.aa","jwsRefused":"bad_signature""#) == "invalid_field")
        #expect(with(#""verified":true"#) == "invalid_field verified")
        #expect(with(#""verified":{}"#) == "missing_field verified.transactionId")
        let verified = """
            {"transactionId":"2","originalTransactionId":"1","bundleId":"b","productId":"p","environment":"Production",
            "purchaseDate":1,"signedDate":2,"payloadDigest":"\(String(repeating: "0", count: 64))"}
            """
        #expect(with(#""verified":"# + verified) == nil)
        for (from, to, fault) in [
            (":1,", ":1.5,", "invalid_field verified.purchaseDate"),
            (":1,", ":\"1\",", "invalid_field verified.purchaseDate"),
            (":1,", ":253402300800000,", "invalid_field verified.purchaseDate"),
            (":1,", ":-1,", "invalid_field verified.purchaseDate"),
            ("00", "0G", "invalid_field verified.payloadDigest"),
            ("\"2\"", "\"\"", "invalid_field verified.transactionId"),
            ("\"p\"", "\"p\",\"prize\":1", "invalid_field verified"),
        ] {
            #expect(with(#""verified":"# + verified.replacing(from, with: to)) == fault)
        }
    }
}

/// Writes as the door and the verifier could have made them, full of awkward texts.
struct RandomWrites {
    private var random: SeededGenerator
    private static let scalars: [ClosedRange<UInt32>] = [
        0x20...0x7e, 0x20...0x7e, 0xa1...0x24f, 0x300...0x36f, 0x3040...0x30ff, 0xe000...0xe0ff, 0xfff0...0xffff,
        0x1f300...0x1f6ff, 0x10fff0...0x10ffff,
    ]
    private static let pieces = ["\"", "\\", "/", "\\u0000", "\u{2028}", "e\u{301}", "🏳️‍🌈", "{\"a\":1}", ",", "$anon_"]
    private static let numbers = [
        "0", "-0", "1e5", "1E-7", "12.50", "-1.7976931348623157e308", "123456789012345678901234567890",
    ]

    init(seed: UInt64) { random = SeededGenerator(seed: seed) }

    private mutating func chance(_ percent: Int) -> Bool { Int.random(in: 0..<100, using: &random) < percent }

    /// At most so many bytes, at least one; control characters only where they are allowed.
    private mutating func text(_ bytes: Int, controls: Bool = false, spaces: Bool = true) -> String {
        var text = "x"
        while chance(85) {
            var piece = Self.pieces.randomElement(using: &random) ?? ""
            if chance(60), let range = Self.scalars.randomElement(using: &random),
                let scalar = Unicode.Scalar(UInt32.random(in: range, using: &random))
            {
                piece = String(Character(scalar))
            } else if controls && chance(40), let scalar = Unicode.Scalar(UInt32.random(in: 1...0x1f, using: &random)) {
                piece = String(Character(scalar))
            }
            if !spaces && piece.unicodeScalars.contains(where: { $0.properties.isWhitespace }) { continue }
            if text.utf8.count + piece.utf8.count > bytes { break }
            text += piece
        }
        return text
    }

    private mutating func digits() -> String { String(UInt64.random(in: 0 ... .max, using: &random)) }

    private mutating func proof() -> WriteProof {
        guard chance(50) else { return WriteProof(attested: true, deviceID: digits()) }
        return WriteProof(
            unattestedReason: chance(50) ? UnattestedReason.allCases.randomElement(using: &random)?.rawValue : nil,
            addressHash: chance(50) ? "00ff00ff00ff00ff" : nil)
    }

    mutating func identify() -> IdentifyWrite {
        var write = IdentifyWrite(appUserID: text(255), bundleID: "com.example_\(digits())", proof: proof())
        if chance(50) { write.platform = chance(50) ? "ios" : "android" }
        if chance(50) { write.osVersion = text(64, controls: true) }
        if chance(50) { write.deviceModel = chance(10) ? "" : text(64, controls: true) }
        if chance(50) { write.locale = text(64) }
        var keys: Set<[UInt8]> = []
        while chance(70) {
            let key = text(128, controls: true)
            guard keys.insert(Array(key.utf8)).inserted else { continue }
            let values: [String?] = [
                nil, "true", "false", JSONWriter.quoted(text(500, controls: true)),
                Self.numbers.randomElement(using: &random),
            ]
            write.attributes.append(.init(key: key, value: values.randomElement(using: &random) ?? nil))
        }
        return write
    }

    mutating func attribute() -> AttributeWrite {
        var write = AttributeWrite(
            appUserID: text(255), bundleID: "a", store: chance(50) ? .appStore : .playStore,
            originalTransactionID: chance(50) ? digits() : text(4096, spaces: false), proof: proof())
        if chance(50) { write.productID = text(255, controls: true) }
        switch Int.random(in: 0..<4, using: &random) {
        case 0: write.evidence = .unverified(jws: "aaaa.\(digits().prefix(8))_-.bbbb".replacing("..", with: "."))
        case 1: write.evidence = .refused(reason: "bad_signature")
        case 2:
            write.evidence = .verified(
                TransactionFacts(
                    transactionID: digits(), originalTransactionID: digits(), bundleID: "a",
                    productID: text(255, controls: true), environment: text(20),
                    purchaseDate: .random(in: 0...9_999_999_999_999, using: &random), signedDate: 0,
                    type: chance(50) ? text(40) : nil, revocationReason: chance(50) ? 1 : nil,
                    isUpgraded: chance(30) ? chance(50) : nil,
                    price: chance(50) ? .random(in: .min ... .max, using: &random) : nil,
                    currency: chance(50) ? text(10) : nil, payloadDigest: String(repeating: "0f", count: 32)))
        default: break
        }
        return write
    }
}
