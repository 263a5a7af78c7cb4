import IngressCore
import Jobs
import RedisQueue
import TestSupport
import Testing
import Wire

@Suite(.timeLimit(.minutes(3))) struct AttributeTests {
    @Test func aSignedTransactionGoesToTheVerifier() async throws {
        try await IngressRig.run { rig in
            let jws = TestPKI().sign(payload: #"{"originalTransactionId":"2000000123456789"}"#)
            expectOK(
                try await rig.attribute(
                    IngressRig.attributeBody(more: #","productId":"com.example.app.pro","jws":"\#(jws)""#),
                    [("X-RevenueHog-Unattested", "simulator")]), okBody)
            let (job, write) = try await rig.onlyAttribute(.verify)
            #expect(job.header.kind == .attribute)
            #expect(job.header.organization == "demo")
            #expect(job.partition == rig.keys.partition(organization: "demo", subject: "user_42"))
            #expect(write.appUserID == "user_42")
            #expect(write.bundleID == IngressRig.bundle)
            #expect(write.originalTransactionID == "2000000123456789")
            #expect(write.productID == "com.example.app.pro")
            #expect(write.evidence == .unverified(jws: jws))
            #expect(write.proof.unattestedReason == "simulator" && !write.proof.attested)
            #expect(write.proof.addressHash?.utf8.count == 16)
            #expect(try await rig.jobCount() == 1)
        }
    }

    @Test func aRawLinkGoesStraightToTheWriter() async throws {
        try await IngressRig.run { rig in
            expectOK(try await rig.attribute(IngressRig.attributeBody()), okBody)
            #expect(try await rig.onlyAttribute(.write).write.evidence == .none)
            #expect(try await rig.jobCount() == 1)
        }
    }

    private static let jws = "eyJhIjoxfQ.eyJiIjoyfQ.c2ln"

    @Test(arguments: [
        ("2000000123456789", #","platform":"ios""#, PurchaseStore.appStore, Lane.write),
        ("2000000123456789", #","platform":"android""#, .playStore, .write),
        ("2000000123456789", #","platform":"android","jws":"\#(jws)""#, .playStore, .verify),
        ("2000000123456789", #","platform":"web""#, .appStore, .write),
        ("2000000123456789", "", .appStore, .write),
        ("opaque.AO-J1Oz", "", .playStore, .write),
        ("opaque.AO-J1Oz", #","platform":"ios""#, .appStore, .write),
        ("opaque.AO-J1Oz", #","jws":"\#(jws)""#, .appStore, .verify),
        ("opaque.AO-J1Oz", #","jws":"no.jws""#, .playStore, .write),
    ])
    func theStoreIsThePlatformsElseWhatTheIDLooksLike(
        transaction: String, more: String, store: PurchaseStore, lane: Lane
    ) async throws {
        try await IngressRig.run { rig in
            expectOK(try await rig.attribute(IngressRig.attributeBody(transaction: transaction, more: more)), okBody)
            #expect(try await rig.onlyAttribute(lane).write.store == store)
        }
    }

    /// Nothing that stands in `jws` is ever an error to the caller: it is proof, or it is not.
    @Test func whateverTheJWSLooksLikeTheLinkIsTaken() async throws {
        let pki = TestPKI()
        let noAlgorithm = "eyJhbGciOiJub25lIn0.e30."
        let xcode = TestPKI.jws(
            header: TestPKI.header(x5c: [pki.rootDER]), payload: Array(#"{"environment":"Xcode"}"#.utf8),
            key: pki.leaf.key)
        try await IngressRig.run { rig in
            for (number, (jws, lane)) in [
                (#""\#(xcode)""#, Lane.verify),
                (#""\#(pki.sign(payload: #"{"bundleId":"com.other.app"}"#))""#, .verify),
                (#""\#(Self.jws)""#, .verify),
                (#""\#(noAlgorithm)""#, .write),
                (#""eyJhIjoxfQ.eyJiIjoyfQ""#, .write),
                (#""""#, .write), (#""...""#, .write), (#""a b.c.d""#, .write), ("null", .write), ("7", .write),
                (#"["a.b.c"]"#, .write), ("{}", .write),
                (#""\#(String(repeating: "a", count: 16_384)).aaaa.aaaa""#, .write),
            ].enumerated() {
                let user = "user_\(number)"
                expectOK(try await rig.attribute(IngressRig.attributeBody(user, more: #","jws":\#(jws)"#)), okBody)
                let jobs = try await rig.jobs(lane)
                #expect(try jobs.contains { try AttributeWrite(payload: $0.payload).appUserID == user }, "\(jws)")
            }
            #expect(try await rig.counters().ignoredFields == ["jws": 9])
        }
    }

    @Test(arguments: ["2000000123456789", #""""#, #""a b""#, #""a\tb""#, "true", "[]"])
    func anIDThatMayHaveLostDigitsOrIsNoneIsRefused(id: String) async throws {
        try await IngressRig.run { rig in
            let body = #"{"appUserId":"u","bundleId":"com.example.app","originalTransactionId":\#(id)}"#
            try expectError(
                try await rig.attribute(body), 400, "invalid_field", field: "originalTransactionId")
            #expect(try await rig.jobCount() == 0)
        }
    }
}
