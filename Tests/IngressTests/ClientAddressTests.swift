import EventLoop
import HTTP
import IngressCore
import Service
import TestSupport
import Testing

@Suite(.timeLimit(.minutes(3))) struct ClientAddressTests {
    /// Whose request it is, as text.
    private func client(_ peer: String, _ forwarded: [String], trusting: String = "10.0.0.0/8,::1,fd00::/8") -> String {
        let clients = ClientAddress(trustedProxies: AddressRange.list(trusting) ?? [])
        let bytes = AddressRange.bytes(of: peer) ?? []
        let address = PeerAddress(
            high: bytes.prefix(8).reduce(0) { $0 << 8 | UInt64($1) },
            low: bytes.suffix(8).reduce(0) { $0 << 8 | UInt64($1) })
        return clients.of(
            HTTPRequest(
                method: .post, path: "/", headers: HTTPHeaders(forwarded.map { ("X-Forwarded-For", $0) }), peer: address
            )
        ).description
    }

    @Test func aTrustedProxysWordCounts() {
        #expect(client("10.0.0.1", ["203.0.113.7"]) == "203.0.113.7")
        #expect(client("::1", ["2001:db8::7"]) == "2001:db8::7")
        #expect(client("10.0.0.1", []) == "10.0.0.1")
    }

    @Test func aForgedHeaderFromElsewhereIsIgnored() {
        #expect(client("203.0.113.9", ["198.51.100.1"]) == "203.0.113.9")
        #expect(client("203.0.113.9", ["10.0.0.1"]) == "203.0.113.9")
        #expect(client("2001:db8::9", ["198.51.100.1"]) == "2001:db8::9")
        #expect(client("10.0.0.1", ["203.0.113.7"], trusting: "none") == "10.0.0.1")
    }

    @Test func theWalkBeginsAtTheEndAndStopsAtTheFirstStranger() {
        // The client wrote the first element itself, the proxy the last.
        #expect(client("10.0.0.1", ["198.51.100.1, 203.0.113.7"]) == "203.0.113.7")
        #expect(client("10.0.0.1", ["198.51.100.1, 203.0.113.7, 10.0.0.2, 10.3.0.3"]) == "203.0.113.7")
        #expect(client("10.0.0.1", ["127.0.0.1, 203.0.113.7, ::1"]) == "203.0.113.7")
        // All of them proxies: the farthest one.
        #expect(client("10.0.0.1", ["10.0.0.3, 10.0.0.2"]) == "10.0.0.3")
    }

    @Test func severalHeadersAreOneList() {
        #expect(client("10.0.0.1", ["198.51.100.1", "203.0.113.7"]) == "203.0.113.7")
        #expect(client("10.0.0.1", ["203.0.113.7", "10.0.0.2"]) == "203.0.113.7")
        #expect(client("10.0.0.1", ["198.51.100.1, 203.0.113.7", "10.0.0.3, 10.0.0.2"]) == "203.0.113.7")
    }

    @Test func emptyElementsAndWhiteSpaceMeanNothing() {
        for header in [
            "203.0.113.7,", "203.0.113.7, ,", ",, 203.0.113.7 ,,", "\t203.0.113.7\t", "203.0.113.7,10.0.0.2, , ",
        ] {
            #expect(client("10.0.0.1", [header]) == "203.0.113.7", "\(header)")
        }
        #expect(client("10.0.0.1", [""]) == "10.0.0.1")
        #expect(client("10.0.0.1", [" , ,"]) == "10.0.0.1")
    }

    @Test(arguments: [
        "unknown", "203.0.113", "203.0.113.7.8", "203.0.113.256", "203.0. 113.7", "203.0.113.7\u{0}", "1", "0x7f000001",
        "203.0.113.7/32", "_hidden", "for=203.0.113.7", "::g", "2001:db8:::1", "[2001:db8::1]", "fe80::1%eth0",
        "203.0.113.7:1234", "\u{fffd}", String(repeating: "1", count: 10_000),
    ])
    func garbageEndsTheWalkAtTheLastAddressThatWasRead(text: String) {
        #expect(client("10.0.0.1", [text]) == "10.0.0.1")
        #expect(client("10.0.0.1", ["203.0.113.7, \(text), 10.0.0.2"]) == "10.0.0.2")
        // To the left of the client anything may stand.
        #expect(client("10.0.0.1", ["\(text), 203.0.113.7"]) == "203.0.113.7")
    }

    @Test func anIPv4AddressInIPv6FormIsThatIPv4Address() {
        #expect(client("10.0.0.1", ["::ffff:203.0.113.7"]) == "203.0.113.7")
        #expect(client("10.0.0.1", ["203.0.113.7, ::ffff:10.0.0.2"]) == "203.0.113.7")
        #expect(client("fd00::5", ["2001:DB8:0:0:0:0:0:7"]) == "2001:db8::7")
    }

    @Test func overHTTPAStrangerCantChooseItsAddress() async throws {
        // Without trusted proxies every call here comes from 127.0.0.1, whatever it says.
        try await IngressRig.run({
            $0.time = ManualTime()
            $0.addressPerMinute = 5
        }) { rig in
            var statuses: [Int] = []
            for number in 1...7 {
                statuses.append(
                    try await rig.identify(
                        IngressRig.identifyBody(), [("X-Forwarded-For", "203.0.113.\(number)")]
                    ).status)
            }
            #expect(statuses == [200, 200, 200, 200, 200, 429, 429])
        }
    }
}
