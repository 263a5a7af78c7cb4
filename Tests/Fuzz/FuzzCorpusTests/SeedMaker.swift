import Bytes
import Foundation
import FuzzTargets
import TestSupport
import Testing
import Wire

/// Writes what the fuzzer starts from: the files of Fixtures, made for a new root, and one seed for each form of input.
/// Only when asked for by RATCHET_FUZZ_SEEDS=1, and then the corpus has to be merged anew.
@Suite(.enabled(if: ProcessInfo.processInfo.environment["RATCHET_FUZZ_SEEDS"] == "1")) struct SeedMaker {
    private func write(_ bytes: [UInt8], _ target: String, _ name: String) throws {
        let folder = Corpus.folder(of: target)
        try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
        try Data(bytes).write(to: folder.appending(path: "seed-\(name)"))
    }

    private func write(_ text: String, _ target: String, _ name: String) throws {
        try write(Array(text.utf8), target, name)
    }

    private func writeFixture(_ bytes: [UInt8], _ name: String) throws {
        let folder = URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
        try Data(bytes).write(to: folder.appending(path: "FuzzTargets/Fixtures/\(name)"))
    }

    @Test func attestations() throws {
        let authenticator = TestAuthenticator(curve: .p256)
        let key = TestPKIKey(.p256)
        func attest(_ change: (inout TestAuthenticator.Parts) -> Void = { _ in }) -> [UInt8] {
            authenticator.attest(
                challenge: FuzzFacts.challenge, team: FuzzFacts.teamID, bundle: FuzzFacts.bundleID,
                nowSeconds: FuzzFacts.nowSeconds, key: key, change
            ).object
        }
        let genuine = attest()
        try writeFixture(genuine, "attestation.cbor")
        try writeFixture(Array(authenticator.rootPEM.utf8), "attestation-root.pem")
        try write(genuine, "attestation", "genuine")
        try write(attest { $0.nonceExtension = [] }, "attestation", "no-nonce")
        try write(attest { $0.counter = 1 }, "attestation", "counter")
        try write(attest { $0.trailing = [0] }, "attestation", "trailing")
        let key32 = [UInt8](repeating: 7, count: 32)
        let cose: [UInt8] =
            [0xA5, 0x01, 0x02, 0x03, 0x26, 0x20, 0x01, 0x21, 0x58, 0x20] + key32 + [0x22, 0x58, 0x20] + key32
        let data =
            key32 + [0x40, 0, 0, 0, 0] + Array("appattest".utf8) + [0, 0, 0, 0, 0, 0, 0] + [0, 32] + key32 + cose
        try write(data, "attestation", "data")
        let name = Array("apple_bundle_version_01".utf8)
        try write(data + [0xA1, 0x77] + name + [0x63] + Array("1.0".utf8), "attestation", "data-with-extensions")
        try write(genuine, "cbor", "attestation")
        try write(cose, "cbor", "key")
        for (index, hex) in [
            "1bffffffffffffffff", "3863", "4401020304", "62c3bc", "f4f5f6", "8301820203", "a26161016162820203", "c0",
            "f97e00",
            "81818101", "9fff",
        ].enumerated() {
            try write(Hex.decode(hex) ?? [], "cbor", "item-\(index)")
        }
    }

    @Test func transactions() throws {
        let root = TestPKICertificate.root(key: TestPKIKey(.p256))
        let intermediate = TestPKICertificate.intermediate(under: root, key: TestPKIKey(.p256))
        let leaf = TestPKICertificate.leaf(under: intermediate)
        let rootDER = root.der()
        let header = TestPKI.header(x5c: [leaf.der(), intermediate.der(), rootDER])
        func token(_ payload: String, header: String = header) -> String {
            TestPKI.jws(header: header, payload: Array(payload.utf8), key: leaf.key)
        }
        let transaction = TestPKITransaction().json
        let genuine = token(transaction)
        try writeFixture(Array(genuine.utf8), "transaction.jws")
        try writeFixture(Array(TestPKI.pem(rootDER).utf8), "transaction-root.pem")
        try write(genuine, "jws", "genuine")
        try write(token(TestPKITransaction().with { $0.bundleID = "com.example.other" }.json), "jws", "other-app")
        try write(token("{}"), "jws", "no-claims")
        try write(token("{}", header: #"{"alg":"none","x5c":[]}"#), "jws", "no-algorithm")
        try write(token("{}", header: #"{"alg":"ES256","x5c":["","AA==","MA=="]}"#), "jws", "no-certificates")
        try write(transaction, "jws", "claims")
        try write(
            TestPKITransaction().with {
                $0.revocationDate = 1_751_328_002_000
                $0.revocationReason = 1
                $0.appAccountToken = "6912cdac-5ec1-8727-9f1b-a2e96f6759a7"
            }.json, "jws", "claims-revoked")
    }

    @Test func requests() throws {
        for (index, probe) in FramingProbes.accepted.enumerated() {
            try write(probe.text, "http", "accepted-\(index)")
        }
        for (index, probe) in FramingProbes.refused.enumerated() where probe.text.utf8.count <= 1200 {
            try write(probe.text, "http", "refused-\(index)")
        }
        try write(FramingProbes.accepted.prefix(4).map(\.text).joined(), "http", "several")
    }

    @Test func texts() throws {
        for (index, text) in ["", "AA==", "AAA=", "AAAA", "_-8", "+/8=", "c2VjcmV0IHRleHQ", "00ff7F", "=", "A"]
            .enumerated()
        {
            try write(text, "base64", "text-\(index)")
        }
        let documents = [
            #"{"a":1,"a":-1.5e+3,"é":"\ud83d\ude00\n"}"#,
            #"[[],{},[{"a":[null,true,false,0,-0,1e400,"\u0041\"\\"]}], "x" ]"#, #""\u0000""#, "\u{feff}1",
            String(repeating: "[", count: 24) + String(repeating: "]", count: 24), "9223372036854775808",
            #"{"b":{"":[1, 2 ,3]},"":"\/\b\f\r\t"}"#, "-", "1 1", #""\ud800""#,
        ]
        for (index, text) in documents.enumerated() { try write(text, "json", "document-\(index)") }
    }

    @Test func bodiesAndPayloads() throws {
        let identify = IdentifyWrite(
            appUserID: "user_42", bundleID: FuzzFacts.bundleID, platform: "ios", osVersion: "26.2",
            deviceModel: "iPhone17,2", locale: "en_US",
            attributes: [
                .init(key: "plan", value: #""pro""#), .init(key: "age", value: "4.2e1"), .init(key: "gone", value: nil),
            ],
            proof: WriteProof(
                attested: true, unattestedReason: nil, deviceID: "dev_1", addressHash: "0123456789abcdef"))
        let digest = SHA256Digest(of: [1]).bytes
        let enrolment = Enrolment(
            keyID: digest, bundleID: FuzzFacts.bundleID, callDigest: digest, tokenHash: digest,
            evidence: .unverified(
                attestation: [1, 2, 3], clientDataHash: digest,
                candidates: [
                    .init(organization: "acme", appID: "app_1", teamID: FuzzFacts.teamID, allowsDevelopment: true)
                ]))
        let facts = TransactionFacts(
            transactionID: "1", originalTransactionID: "2", bundleID: FuzzFacts.bundleID, productID: "pro",
            environment: "Sandbox", purchaseDate: 1, signedDate: 2, isUpgraded: true, price: 5,
            payloadDigest: Hex.encode(digest))
        func attribute(_ evidence: AttributeWrite.Evidence) -> [UInt8] {
            AttributeWrite(
                appUserID: "user_42", bundleID: FuzzFacts.bundleID, store: .appStore, originalTransactionID: "2",
                productID: "pro", evidence: evidence, proof: WriteProof(unattestedReason: "pending")
            ).encodePayload()
        }
        try write(identify.encodePayload(), "wire", "identify-payload")
        try write(attribute(.unverified(jws: "AAAA.AAAA.AAAA")), "wire", "attribute-payload")
        try write(attribute(.refused(reason: "bad_signature")), "wire", "attribute-refused")
        try write(attribute(.verified(facts)), "wire", "attribute-verified")
        try write(
            AdServicesWrite(
                bundleID: FuzzFacts.bundleID, installID: "i-1", sealedToken: Array(repeating: 1, count: 61),
                storefront: "us", environment: .xcode
            ).encodePayload(), "wire", "adservices-payload")
        try write(
            #"{"bundleId":"b","installId":"i","token":"\#(String(repeating: "+/aA", count: 9))","environment":"xcode"}"#,
            "wire", "adservices")
        try write(enrolment.encodePayload(), "wire", "enrolment")
        var verified = enrolment
        verified.evidence = .verified(
            .init(
                organization: "acme", appID: "app_1", environment: "production",
                publicKey: [UInt8](repeating: 4, count: 65), receipt: [1],
                bundleVersion: "1", validationCategory: "00"))
        try write(verified.encodePayload(), "wire", "enrolment-verified")
        try write(
            EnrolmentAnswer.enrolled(
                DeviceFacts(organization: "acme", appID: "app_1", deviceID: "dev_1")
            ).encodePayload(), "wire", "answer")
        try write(EnrolmentAnswer.refused(reason: "bad_nonce").encodePayload(), "wire", "answer-refused")
        try write(EnrolmentAnswer.superseded.encodePayload(), "wire", "answer-superseded")
        try write(DeviceQuestion(tokenHash: digest).encodePayload(), "wire", "question")
        try write(
            DeviceFacts.encode(DeviceFacts(organization: "acme", appID: "app_1", deviceID: "dev_1")), "wire", "facts")
        try write(
            AppDirectory.encode([
                .init(
                    organization: "acme", id: "app_1", bundleID: FuzzFacts.bundleID, store: .appStore,
                    team: FuzzFacts.teamID, allowsDevelopment: true, attestedPerMinute: 5)
            ]), "wire", "directory")
        try write("identify|1|1751328000000001|0|acme|1751328000000|0|||", "wire", "header")
        try write("Bearer dt_\(String(repeating: "A", count: 43))", "wire", "authorization")
        try write(
            #"{"appUserId":"$anon_1","bundleId":"com.example.app","platform":"ios","attributes":{"a":null,"a":1}}"#,
            "wire", "identify")
        try write(
            #"{"appUserId":"u","bundleId":"b","originalTransactionId":"2000","productId":"p","jws":"AA.AA.AA"}"#,
            "wire", "attribute")
        try write(
            #"{"keyId":"\#(Base64.encode(digest, .standard))","attestation":"AAAA","challenge":"c","bundleId":"b"}"#,
            "wire", "attest")
    }
}
