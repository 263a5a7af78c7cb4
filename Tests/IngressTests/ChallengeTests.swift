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
}
