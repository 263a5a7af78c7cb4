import FuzzTargets
import HTTP
import TestSupport
import Testing

/// The parser alone: what it makes of bytes doesn't depend on how they were split, and nothing makes it trap.
@Suite(.timeLimit(.minutes(3))) struct ParserTests {
    typealias Outcome = HTTPOutcome

    static func parse(
        _ pieces: [ArraySlice<UInt8>], limits: HTTPServerConfiguration = HTTPOutcome.limits
    ) -> Outcome {
        do {
            return try Outcome(of: pieces, limits: limits)
        } catch {
            Issue.record(error)
            return Outcome()
        }
    }

    static func split(_ bytes: [UInt8], _ generator: inout some RandomNumberGenerator) -> [ArraySlice<UInt8>] {
        var pieces: [ArraySlice<UInt8>] = []
        var rest = bytes[...]
        let longest = [1, 3, 20, 200].randomElement(using: &generator) ?? 1
        while !rest.isEmpty {
            let count = min(rest.count, Int.random(in: 0...longest, using: &generator))
            pieces.append(rest.prefix(count))
            rest = rest.dropFirst(count)
        }
        return pieces
    }

    static let wellFormed = FramingProbes.accepted.map { Array($0.text.utf8) }
    static let corpus = FramingProbes.refused.map { Array($0.text.utf8.prefix(1500)) } + wellFormed

    @Test func theWholeBytewiseAndRandomSplitsOfEveryProbeAgree() async {
        var generator = SeededGenerator(seed: 1)
        for probe in Self.corpus {
            await Task.yield()
            let whole = Self.parse([probe[...]])
            #expect(Self.parse(probe.indices.map { probe[$0...$0] }) == whole)
            for _ in 0..<5 { #expect(Self.parse(Self.split(probe, &generator)) == whole) }
        }
    }

    @Test(arguments: 0..<8) func mutatedBytesNeverTrapAndSplitsAgree(_ seed: UInt64) async {
        var generator = SeededGenerator(seed: 1000 + seed)
        let telling: [UInt8] = Array("\r\n :\t;,%?/0129afGx\0\u{7f}+-".utf8) + [0x80, 0xff]
        var served = 0
        var failed = 0
        for _ in 0..<200 {
            // Other tests share the two threads of a small machine.
            await Task.yield()
            var bytes: [UInt8] = []
            for _ in 0..<Int.random(in: 1...3, using: &generator) {
                let corpus = Bool.random(using: &generator) ? Self.corpus : Self.wellFormed
                bytes += corpus.randomElement(using: &generator) ?? []
            }
            for _ in 0..<Int.random(in: 0...4, using: &generator) where !bytes.isEmpty {
                let place = Int.random(in: 0..<bytes.count, using: &generator)
                switch Int.random(in: 0..<6, using: &generator) {
                case 0: bytes[place] ^= 1 << UInt8.random(in: 0..<8, using: &generator)
                case 1: bytes[place] = telling.randomElement(using: &generator) ?? 0
                case 2: bytes.insert(telling.randomElement(using: &generator) ?? 0, at: place)
                case 3: bytes.removeSubrange(place..<min(bytes.count, place + Int.random(in: 1...8, using: &generator)))
                case 4:
                    let end = min(bytes.count, place + Int.random(in: 1...40, using: &generator))
                    bytes.insert(contentsOf: bytes[place..<end], at: Int.random(in: 0...bytes.count, using: &generator))
                default: bytes.removeSubrange(place...)
                }
            }
            let whole = Self.parse([bytes[...]])
            let pieces = Self.split(bytes, &generator)
            #expect(Self.parse(pieces) == whole, "\(bytes)")
            #expect(throws: Never.self) { try whole.checkMessages() }
            served += whole.messages.count
            failed += whole.failure == nil ? 0 : 1
        }
        // Both ends of the grammar were reached.
        #expect(served > 20)
        #expect(failed > 20)
    }

    @Test func everyWellFormedRequestIsGivenBackAsItWasMade() {
        var generator = SeededGenerator(seed: 77)
        var bytes: [UInt8] = []
        var expected = Outcome()
        let names = ["X-A", "accept", "User-Agent", "x-_~!#$%&'*+.^`|"]
        let values = ["", "a", "a b\tc", "\"q\"; x=y", "é"]
        for _ in 0..<500 {
            let method = HTTPMethod.allCases.randomElement(using: &generator) ?? .get
            let path = "/" + String(repeating: "p", count: Int.random(in: 0..<30, using: &generator))
            let query: String? =
                Bool.random(using: &generator) ? nil : ["", "a=b", "?x"].randomElement(using: &generator)
            var fields = [("Host", "a.example:80")]
            for _ in 0..<Int.random(in: 0..<5, using: &generator) {
                fields.append(
                    (names.randomElement(using: &generator) ?? "", values.randomElement(using: &generator) ?? ""))
            }
            let body = (0..<Int.random(in: 0..<300, using: &generator)).map { _ in
                UInt8.random(in: 0...255, using: &generator)
            }
            var framed: [UInt8] = body
            switch Int.random(in: 0..<3, using: &generator) {
            case 0 where body.isEmpty: break
            case 1:
                fields.append(("Transfer-Encoding", "chunked"))
                framed = []
                var rest = body[...]
                while !rest.isEmpty {
                    let count = Int.random(in: 1...rest.count, using: &generator)
                    framed += Array("\(String(count, radix: 16))\r\n".utf8) + rest.prefix(count) + [13, 10]
                    rest = rest.dropFirst(count)
                }
                framed += Array("0\r\n\r\n".utf8)
            default: fields.append(("Content-Length", "\(body.count)"))
            }
            let target = path + (query.map { "?\($0)" } ?? "")
            bytes += Array("\(method.rawValue) \(target) HTTP/1.1\r\n".utf8)
            for (name, value) in fields {
                let before = ["", " ", "  "].randomElement(using: &generator) ?? ""
                bytes += Array("\(name):\(before)\(value) \r\n".utf8)
            }
            bytes += [13, 10] + framed
            expected.messages.append(
                Outcome.Message(
                    method: method.rawValue, path: path, query: query, isHTTP10: false,
                    fields: fields.map { "\($0.0.lowercased()): \($0.1)" }, body: body, closes: false))
        }
        expected.consumed = bytes.count
        for _ in 0..<3 { #expect(Self.parse(Self.split(bytes, &generator)) == expected) }
    }

    /// Each limit is met exactly: the last byte or field that fits is taken, the next is not.
    @Test func limitsHoldToTheByte() {
        func code(_ text: String) -> HTTPFailure.Code? { Self.parse([Array(text.utf8)[...]]).failure?.code }
        func line(_ count: Int) -> String {
            "GET /\(String(repeating: "a", count: count - 14)) HTTP/1.1\r\nHost: a\r\n\r\n"
        }
        #expect(code(line(200)) == nil)
        #expect(code(line(201)) == .targetTooLong)
        func header(_ count: Int) -> String {
            // "Host: a" and "X: " with their line ends, and the empty line.
            "GET / HTTP/1.1\r\nHost: a\r\nX: \(String(repeating: "b", count: count - 16))\r\n\r\n"
        }
        #expect(code(header(400)) == nil)
        #expect(code(header(401)) == .headerTooLarge)
        func fields(_ count: Int) -> String {
            "GET / HTTP/1.1\r\nHost: a\r\n" + String(repeating: "X: y\r\n", count: count - 1) + "\r\n"
        }
        #expect(code(fields(8)) == nil)
        #expect(code(fields(9)) == .headerTooLarge)
        func body(_ count: Int) -> String {
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: \(count)\r\n\r\n\(String(repeating: "b", count: count))"
        }
        #expect(code(body(300)) == nil)
        #expect(code(body(301)) == .bodyTooLarge)
        let chunked = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
        let half = "96\r\n\(String(repeating: "b", count: 150))\r\n"
        #expect(code(chunked + half + half + "0\r\n\r\n") == nil)
        #expect(code(chunked + half + half + "1\r\n") == .bodyTooLarge)
        func trailer(_ count: Int) -> String {
            chunked + "0\r\nX: \(String(repeating: "t", count: count - 7))\r\n\r\n"
        }
        #expect(code(trailer(60)) == nil)
        #expect(code(trailer(62)) == .headerTooLarge)
        func extensions(_ count: Int) -> String {
            chunked + "1;\(String(repeating: "e", count: count - 10))\r\na\r\n1;eeeeeeeeee\r\nb\r\n0\r\n\r\n"
        }
        #expect(code(extensions(20)) == nil)
        #expect(code(extensions(21)) == .malformedRequest)
    }

    @Test func addressesReadAsTheyAreWritten() {
        let cases: [(UInt64, UInt64, String)] = [
            (0, 0xffff_7f00_0001, "127.0.0.1"), (0, 1, "::1"), (0, 0, "::"),
            (0x2001_0db8_0000_0000, 0x0000_0000_0000_0001, "2001:db8::1"),
            (0x2001_0db8_0000_0001, 0x0001_0001_0001_0001, "2001:db8:0:1:1:1:1:1"),
            (0x2001_0000_0000_0001, 0x0000_0000_0000_0001, "2001:0:0:1::1"),
            (0xfe80_0000_0000_0000, 0, "fe80::"),
        ]
        for (high, low, text) in cases { #expect(PeerAddress(high: high, low: low).description == text) }
        #expect(PeerAddress(ipv4: 192, 0, 2, 7).bytes == [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 192, 0, 2, 7])
    }
}
