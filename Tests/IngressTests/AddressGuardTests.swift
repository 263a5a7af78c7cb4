import EventLoop
import HTTP
import IngressCore
import Service
import TestSupport
import Testing

@Suite(.timeLimit(.minutes(3))) struct AddressGuardTests {
    private static let second: Int64 = 1_000_000_000

    private func ipv6(_ high: UInt64, _ low: UInt64) -> PeerAddress { PeerAddress(high: high, low: low) }

    @Test func aBurstOfTheLimitPassesAndTheNextIsToldTheExactSecond() {
        let guardian = AddressGuard(perMinute: 600)
        let peer = PeerAddress(ipv4: 203, 0, 113, 7)
        for _ in 0..<600 { #expect(guardian.check(peer, nowNanoseconds: 0) == nil) }
        // A tenth of a second gives one call back, told in whole seconds.
        #expect(guardian.check(peer, nowNanoseconds: 0) == 1)
        #expect(guardian.check(peer, nowNanoseconds: Self.second / 10 - 1) == 1)
        #expect(guardian.check(peer, nowNanoseconds: Self.second / 10) == nil)
        #expect(guardian.check(peer, nowNanoseconds: Self.second / 10) == 1)
    }

    @Test func whoWaitsAsToldPasses() {
        let guardian = AddressGuard(perMinute: 3)
        let peer = PeerAddress(ipv4: 203, 0, 113, 7)
        for _ in 0..<3 { #expect(guardian.check(peer, nowNanoseconds: 0) == nil) }
        #expect(guardian.check(peer, nowNanoseconds: 0) == 20)
        #expect(guardian.check(peer, nowNanoseconds: 1) == 20)
        #expect(guardian.check(peer, nowNanoseconds: 18 * Self.second) == 2)
        #expect(guardian.check(peer, nowNanoseconds: 19 * Self.second) == 1)
        #expect(guardian.check(peer, nowNanoseconds: 20 * Self.second) == nil)
        #expect(guardian.check(peer, nowNanoseconds: 20 * Self.second) == 20)
        // Asking in vain costs nothing: after a quiet minute the whole burst is there again, and no more.
        for _ in 0..<3 { #expect(guardian.check(peer, nowNanoseconds: 200 * Self.second) == nil) }
        #expect(guardian.check(peer, nowNanoseconds: 200 * Self.second) == 20)
    }

    @Test func anIPv4AddressIsOneAndAnIPv6OneIsItsNetwork() {
        let guardian = AddressGuard(perMinute: 1)
        #expect(guardian.check(PeerAddress(ipv4: 203, 0, 113, 7, port: 1), nowNanoseconds: 0) == nil)
        #expect(guardian.check(PeerAddress(ipv4: 203, 0, 113, 7, port: 2), nowNanoseconds: 0) == 60)
        #expect(guardian.check(PeerAddress(ipv4: 203, 0, 113, 8), nowNanoseconds: 0) == nil)
        let home: UInt64 = 0x2001_0db8_0001_0002
        #expect(guardian.check(ipv6(home, 1), nowNanoseconds: 0) == nil)
        #expect(guardian.check(ipv6(home, .max), nowNanoseconds: 0) == 60)
        #expect(guardian.check(ipv6(home + 1, 1), nowNanoseconds: 0) == nil)
    }

    @Test func noLimitIsNone() {
        let guardian = AddressGuard(perMinute: 0)
        for _ in 0..<2000 { #expect(guardian.check(PeerAddress(ipv4: 1, 1, 1, 1), nowNanoseconds: 0) == nil) }
        #expect(guardian.networkCount == 0)
    }

    @Test func memoryIsBoundedWhateverStrangersDo() {
        let guardian = AddressGuard(perMinute: 600)
        var most = 0
        for number in 0..<UInt64(2 * AddressGuard.mostNetworks + 10) {
            _ = guardian.check(ipv6(0x2001_0db8_0000_0000 + number, 0), nowNanoseconds: 0)
            if number % 1000 == 0 { most = max(most, guardian.networkCount) }
        }
        #expect(most <= AddressGuard.mostNetworks)
        #expect(guardian.networkCount <= AddressGuard.mostNetworks)
    }

    @Test func whoIsOverTheLimitStaysSoWhileQuietNetworksAreForgotten() {
        let guardian = AddressGuard(perMinute: 600)
        let flooder = PeerAddress(ipv4: 203, 0, 113, 7)
        // One call each, long ago.
        for number in 0..<UInt64(AddressGuard.mostNetworks - 1) {
            _ = guardian.check(ipv6(0x2001_0db8_0000_0000 + number, 0), nowNanoseconds: 0)
        }
        let now = 10 * Self.second
        for _ in 0..<600 { _ = guardian.check(flooder, nowNanoseconds: now) }
        #expect(guardian.check(PeerAddress(ipv4: 203, 0, 113, 8), nowNanoseconds: now) == nil)
        #expect(guardian.networkCount == 2)
        #expect(guardian.check(flooder, nowNanoseconds: now) == 1)
    }

    @Test func overHTTPTheGuardAnswersTheExactSecond() async throws {
        let time = ManualTime()
        try await IngressRig.run({
            $0.time = time
            $0.addressPerMinute = 3
            $0.trustedProxies = AddressRange.list("127.0.0.1") ?? []
        }) { rig in
            func post(_ address: String) async throws -> RawHTTPClient.Response {
                try await rig.identify(IngressRig.identifyBody(), [("X-Forwarded-For", address)])
            }
            for _ in 0..<3 { expectOK(try await post("203.0.113.7")) }
            try expectLimited(try await post("203.0.113.7"), seconds: 20...20)
            expectOK(try await post("203.0.113.8"))
            for low in 1...3 { expectOK(try await post("2001:db8::\(low)")) }
            try expectLimited(try await post("2001:db8::ffff"), seconds: 20...20)
            expectOK(try await post("2001:db8:0:1::1"))
            time.advance(milliseconds: 19_000)
            try expectLimited(try await post("203.0.113.7"), seconds: 1...1)
            time.advance(milliseconds: 1000)
            expectOK(try await post("203.0.113.7"))
        }
    }

    @Test func loopsOfAProcessShareTheGuard() async throws {
        try await IngressRig.run({
            $0.time = ManualTime()
            $0.addressPerMinute = 10
            $0.loops = 2
            $0.sharesPort = true
        }) { rig in
            var statuses: [Int] = []
            for _ in 0..<14 { statuses.append(try await rig.identify(IngressRig.identifyBody()).status) }
            #expect(statuses == Array(repeating: 200, count: 10) + Array(repeating: 429, count: 4))
        }
    }
}
