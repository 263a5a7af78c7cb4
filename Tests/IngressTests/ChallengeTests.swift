import EventLoop
import IngressCore
import Redis
import RedisQueue
import TestSupport
import Testing

@Suite(.timeLimit(.minutes(2))) struct ChallengeTests {
    private static let now: Int64 = 1_800_000_000_000
    private let challenges = Challenges(secret: Array("one secret of at least thirty-two bytes".utf8))

    @Test func aChallengeLivesForFiveMinutesAndNoLonger() {
        let text = challenges.make(nowMilliseconds: Self.now)
        #expect(challenges.read(text, nowMilliseconds: Self.now)?.millisecondsLeft == 300_000)
        #expect(challenges.read(text, nowMilliseconds: Self.now + 299_999)?.millisecondsLeft == 1)
        #expect(challenges.read(text, nowMilliseconds: Self.now + 300_000) == nil)
    }

    @Test func noBitOfAChallengeCanBeChanged() {
        let text = Array(challenges.make(nowMilliseconds: Self.now).utf8)
        let other = Challenges(secret: Array("another secret of at least thirty-two".utf8))
        #expect(other.read(String(decoding: text, as: UTF8.self), nowMilliseconds: Self.now) == nil)
        for index in text.indices {
            for replacement in [UInt8(ascii: "A"), UInt8(ascii: "_")] where text[index] != replacement {
                var bent = text
                bent[index] = replacement
                let left = challenges.read(
                    String(decoding: bent, as: UTF8.self), nowMilliseconds: Self.now)
                #expect(left == nil, "character \(index)")
            }
        }
        for length in 0..<text.count {
            let cut = String(decoding: text.prefix(length), as: UTF8.self)
            #expect(challenges.read(cut, nowMilliseconds: Self.now) == nil)
        }
    }

    @Test func challengesAreGivenOutUpToTheAddressLimitAndCostRedisNothing() async throws {
        try await IngressRig.run({ $0.challengePerMinute = 3 }) { rig in
            var seen: Set<String> = []
            for _ in 0..<3 {
                let response = try await rig.connect().exchange(
                    "POST /api/sdk/v1/attest/challenge HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n")
                #expect(response.status == 200)
                #expect(response.first("cache-control") == "no-store")
                seen.insert(response.text)
            }
            #expect(seen.count == 3)
            let limited = try await rig.connect().exchange(
                "POST /api/sdk/v1/attest/challenge HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n")
            try expectLimited(limited, seconds: 1...60)
            // Other tests use the same server: only keys of this rig count.
            let keys = try await rig.command(["KEYS", .text(rig.keys.prefix + "used:*")])
            #expect(keys.elements?.isEmpty == true)
        }
    }

    /// sdk.md 78: the counters by step are what finds an integration whose challenges pass and whose exchanges don't.
    @Test func everyStepOfAnEnrolmentIsCountedByAppAndReason() async throws {
        try await IngressRig.run { rig in
            let call: @Sendable (String, String) async throws -> RawHTTPClient.Response = { path, body in
                try await rig.connect().exchange(
                    "POST /api/sdk/v1/\(path) HTTP/1.1\r\nHost: x\r\nContent-Length: \(body.utf8.count)\r\n\r\n\(body)")
            }
            let attest: @Sendable (String, String) async throws -> Int = { bundle, challenge in
                try await call(
                    "attest",
                    #"{"keyId":"\#(String(repeating: "A", count: 43))=","attestation":"oA==","challenge":"\#(challenge)","#
                        + #""bundleId":"\#(bundle)"}"#
                ).status
            }
            for _ in 0..<3 { #expect(try await call("attest/challenge", "").status == 200) }
            #expect(try await attest(IngressRig.bundle, "nonsense") == 401)
            let part = rig.parts[0]
            let issued = Challenges(secret: Array(IngressRig.secret.utf8))
            let challenge = { issued.make(nowMilliseconds: part.loop.time.wallMilliseconds) }
            #expect(try await attest("com.example.nobody", challenge()) == 404)
            try await part.loop.run { await part.ingress.enrolments.flush() }
            let counts = try await rig.enrolments()
            #expect(
                counts == [
                    "||challenged|": 3, "demo|\(IngressRig.bundle)|attempted|": 1,
                    "demo|\(IngressRig.bundle)|refused|challenge": 1, "||attempted|": 1, "||not_connected|": 1,
                ])
        }
    }
}
