import Bytes
import HTTP
import IngressCore
import Jobs
import RedisQueue
import Service
import TestSupport
import Testing
import Wire

@Suite(.timeLimit(.minutes(3))) struct IdentifyTests {
    /// The id as the documents derive it, written down once more: SHA-256 over three parts with a zero byte between
    /// each two, cut to 16 bytes, version 8 and variant set.
    private func derivedID(_ organization: String, _ user: String) -> String {
        let text = "ratchet.customer\u{0}\(organization)\u{0}\(user)"
        var bytes = Array(SHA256Digest(of: Array(text.utf8)).bytes[..<16])
        bytes[6] = 0x80 | bytes[6] & 0x0f
        bytes[8] = 0x80 | bytes[8] & 0x3f
        let hex = Array(Hex.encode(bytes))
        return [0..<8, 8..<12, 12..<16, 16..<20, 20..<32].map { String(hex[$0]) }.joined(separator: "-")
    }

    @Test func identifyAnswersTheDerivedIDAndRedisHasTheJob() async throws {
        try await IngressRig.run { rig in
            let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
            let response = try await rig.identify(
                IngressRig.identifyBody(
                    more: #","platform":"ios","osVersion":"26.2","deviceModel":"iPhone17,2","locale":"en_US","#
                        + #""attributes":{"plan":"pro","seats":1e2,"gone":null,"on":true}"#),
                [("traceparent", trace)])
            expectOK(response, #"{"ok":true,"id":"\#(derivedID("demo", "user_42"))"}"#)
            let (job, write) = try await rig.onlyIdentify()
            #expect(job.header.kind == .identify)
            #expect(job.header.version == 1)
            #expect(job.header.attempts == 0)
            #expect(job.header.organization == "demo")
            #expect(job.header.enqueuedMilliseconds == job.header.stamp / 1000)
            #expect(job.header.expiresMilliseconds == 0)
            #expect(job.header.traceparent == trace)
            #expect(job.header.replyTo.isEmpty && job.header.correlationID.isEmpty)
            #expect(job.partition == rig.keys.partition(organization: "demo", subject: "user_42"))
            var expected = IdentifyWrite(
                appUserID: "user_42", bundleID: IngressRig.bundle, platform: "ios", osVersion: "26.2",
                deviceModel: "iPhone17,2", locale: "en_US",
                attributes: [
                    .init(key: "plan", value: #""pro""#), .init(key: "seats", value: "1e2"),
                    .init(key: "gone", value: nil), .init(key: "on", value: "true"),
                ])
            expected.proof = write.proof
            #expect(write == expected)
            #expect(try await rig.jobCount() == 1)
        }
    }

    @Test func everyAnsweredWriteIsInRedisWhenItsAnswerArrives() async throws {
        try await IngressRig.run { rig in
            let client = try await rig.connect()
            for number in 1...100 {
                let response = try await client.exchange(
                    IngressRig.request(SDKRoute.identify.path, IngressRig.identifyBody("user_\(number)")))
                #expect(response.status == 200)
                #expect(try await rig.jobs(.write).count == number)
            }
        }
    }

    @Test func anIDBelongsToOneOrganizationAndOneUser() async throws {
        try await IngressRig.run({
            $0.apps = [IngressRig.demo, IngressRig.app("acme", "com.acme.app")]
        }) { rig in
            var ids: Set<String> = []
            for (user, bundle, organization) in [
                ("user_42", IngressRig.bundle, "demo"), ("user_42", "com.acme.app", "acme"),
                ("User_42", IngressRig.bundle, "demo"), ("$anon_1B7A2C", IngressRig.bundle, "demo"),
                // One letter in two canonically equal spellings: two users, for ids are bytes.
                ("caf\u{e9}", IngressRig.bundle, "demo"), ("cafe\u{301}", IngressRig.bundle, "demo"),
            ] {
                for _ in 0..<2 {
                    let response = try await rig.identify(IngressRig.identifyBody(user, bundle: bundle))
                    expectOK(response, #"{"ok":true,"id":"\#(derivedID(organization, user))"}"#)
                    ids.insert(response.text)
                }
            }
            #expect(ids.count == 6)
        }
    }

    @Test(arguments: [
        (#","platform":"ios""#, "ios"), (#","platform":"android""#, "android"), ("", nil),
        (#","platform":"web""#, nil), (#","platform":"iOS""#, nil), (#","platform":7"#, nil),
        (#","platform":null"#, nil),
    ])
    func oneRuleHoldsForEveryPlatform(member: String, kept: String?) async throws {
        try await IngressRig.run { rig in
            let response = try await rig.identify(IngressRig.identifyBody(more: member))
            expectOK(response, #"{"ok":true,"id":"\#(derivedID("demo", "user_42"))"}"#)
            #expect(try await rig.onlyIdentify().write.platform == kept)
            expectOK(try await rig.attribute(IngressRig.attributeBody(more: member)), okBody)
            #expect(try await rig.jobs(.write).count == 2)
        }
    }

    @Test(arguments: ["en_001@rg=nlzzzz", "zh-Hans_CN", "sr_Latn_RS@calendar=gregorian", "es-419", ""])
    func everyLocaleIsKeptAsSent(locale: String) async throws {
        try await IngressRig.run { rig in
            expectOK(try await rig.identify(IngressRig.identifyBody(more: #","locale":"\#(locale)""#)))
            #expect(try await rig.onlyIdentify().write.locale == locale)
        }
    }

    @Test func optionalFieldsThatCantBeUsedAreIgnoredAndCounted() async throws {
        try await IngressRig.run { rig in
            let long = String(repeating: "x", count: 65)
            expectOK(
                try await rig.identify(
                    IngressRig.identifyBody(more: #","locale":"\#(long)","osVersion":26,"deviceModel":["a"]"#)))
            let write = try await rig.onlyIdentify().write
            #expect(write.locale == nil && write.osVersion == nil && write.deviceModel == nil)
            #expect(try await rig.counters().ignoredFields == ["locale": 1, "osVersion": 1, "deviceModel": 1])
        }
    }

    @Test(arguments: [
        #""""#, #""   ""#, #""null""#, #""(null)""#, #""undefined""#, #""[object Object]""#, "0", "true", "{}",
        #""\#(String(repeating: "x", count: 513))""#, #""a\u0000b""#, #""a\nb""#,
    ])
    func nobodyIsNamedByAStringifiedNothing(id: String) async throws {
        try await IngressRig.run { rig in
            let body = #"{"appUserId":\#(id),"bundleId":"com.example.app"}"#
            let code = id.contains("u0000") ? "malformed_json" : "invalid_field"
            let field = id.contains("u0000") ? nil : "appUserId"
            try expectError(try await rig.identify(body), 400, code, field: field)
            #expect(try await rig.jobCount() == 0)
        }
    }

    @Test func aNullIDIsAMissingOneAndAnOddOneIsCounted() async throws {
        try await IngressRig.run { rig in
            try expectError(
                try await rig.identify(#"{"appUserId":null,"bundleId":"com.example.app"}"#), 400, "missing_field",
                field: "appUserId")
            expectOK(try await rig.identify(IngressRig.identifyBody("guest")))
            #expect(try await rig.counters().oddities == ["odd_user_id": 1])
        }
    }

    // MARK: - Proof

    @Test(arguments: [
        (nil, nil), ("pending", "pending"), ("unsupported", "unsupported"), ("simulator", "simulator"),
        ("enroll-failed", "enroll-failed"), (" simulator ", "simulator"), ("Simulator", "other"), ("x|y", "other"),
        ("", "other"),
    ])
    func theReasonOfATokenlessCallIsOneOfAClosedList(header: String?, kept: String?) async throws {
        try await IngressRig.run { rig in
            let headers = header.map { [("X-RevenueHog-Unattested", $0)] } ?? []
            expectOK(try await rig.identify(IngressRig.identifyBody(), headers))
            let proof = try await rig.onlyIdentify().write.proof
            #expect(!proof.attested)
            #expect(proof.unattestedReason == kept)
            #expect(proof.deviceID == nil)
            #expect(try await rig.counters().unattested == [kept ?? "none": 1])
        }
    }

    @Test func theSendersNetworkIsKeptAsAKeyedHashAlone() async throws {
        try await IngressRig.run({ $0.trustedProxies = AddressRange.list("127.0.0.1") ?? [] }) { rig in
            func hash(_ address: String, _ user: String) async throws -> String {
                expectOK(
                    try await rig.identify(
                        IngressRig.identifyBody(user),
                        [("X-Forwarded-For", address), ("X-RevenueHog-Unattested", "pending")]))
                let jobs = try await rig.jobs(.write)
                let writes = try jobs.map { try IdentifyWrite(payload: $0.payload) }
                for job in jobs {
                    let text = String(decoding: job.payload, as: UTF8.self)
                    for told in ["203.0.113", "2001:db8", "127.0.0.1", IngressRig.secret] {
                        #expect(!text.contains(told))
                    }
                }
                return try #require(writes.first { $0.appUserID == user }?.proof.addressHash)
            }
            let one = try await hash("203.0.113.7", "a")
            #expect(one.utf8.count == 16)
            #expect(try await hash("203.0.113.7", "b") == one)
            #expect(try await hash("203.0.113.8", "c") != one)
            let home = try await hash("2001:db8:1:2::1", "d")
            #expect(try await hash("2001:db8:1:2:ffff::9", "e") == home)
            #expect(try await hash("2001:db8:1:3::1", "f") != home)
        }
    }

    @Test func anAddressHashIsWorthNothingWithoutTheSecret() {
        let peer = PeerAddress(ipv4: 203, 0, 113, 7)
        let one = AddressHash(secret: Array("one".utf8)).of(peer)
        #expect(one != AddressHash(secret: Array("two".utf8)).of(peer))
        #expect(!SHA256Digest(of: peer.bytes).hex.contains(one))
    }
}
