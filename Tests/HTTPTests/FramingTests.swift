import HTTP
import TestSupport
import Testing

/// What a request may look like: each probe goes over a real socket and must be refused, with its connection, or be
/// understood in the one way there is.
@Suite struct FramingTests {
    static let host = "Host: a\r\n"

    struct Probe: Sendable, CustomTestStringConvertible {
        let name: String
        let text: String
        var status = 400
        var testDescription: String { name }
    }

    static let refused: [Probe] = {
        let post = "POST /x HTTP/1.1\r\n\(host)"
        let chunked = "\(post)Transfer-Encoding: chunked\r\n\r\n"
        return [
            Probe(name: "two equal lengths", text: "\(post)Content-Length: 2\r\nContent-Length: 2\r\n\r\nhi"),
            Probe(name: "two differing lengths", text: "\(post)Content-Length: 2\r\nContent-Length: 3\r\n\r\nhi!"),
            Probe(name: "a list of lengths", text: "\(post)Content-Length: 2, 2\r\n\r\nhi"),
            Probe(name: "length with a plus", text: "\(post)Content-Length: +2\r\n\r\nhi"),
            Probe(name: "length in hexadecimal", text: "\(post)Content-Length: 0x2\r\n\r\nhi"),
            Probe(name: "negative length", text: "\(post)Content-Length: -1\r\n\r\nhi"),
            Probe(name: "empty length", text: "\(post)Content-Length:\r\n\r\nhi"),
            Probe(name: "length with a space inside", text: "\(post)Content-Length: 1 2\r\n\r\nhi"),
            Probe(name: "length with a fraction", text: "\(post)Content-Length: 2.0\r\n\r\nhi"),
            Probe(
                name: "huge length", text: "\(post)Content-Length: 99999999999999999999999\r\n\r\nhi", status: 413),
            Probe(name: "largest length", text: "\(post)Content-Length: 9223372036854775807\r\n\r\nhi", status: 413),
            Probe(
                name: "length beside chunked",
                text: "\(post)Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
            Probe(
                name: "chunked beside length",
                text: "\(post)Transfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n0\r\n\r\n"),
            Probe(name: "gzip, chunked", text: "\(post)Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"),
            Probe(name: "xchunked", text: "\(post)Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n"),
            Probe(name: "identity", text: "\(post)Transfer-Encoding: identity\r\n\r\n"),
            Probe(name: "empty transfer encoding", text: "\(post)Transfer-Encoding:\r\n\r\n"),
            Probe(name: "chunked, chunked", text: "\(post)Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n"),
            Probe(
                name: "chunked twice",
                text: "\(post)Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
            Probe(
                name: "chunked and identity",
                text: "\(post)Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n"),
            Probe(
                name: "chunked with vertical tab", text: "\(post)Transfer-Encoding: \u{b}chunked\r\n\r\n0\r\n\r\n"),
            Probe(
                name: "chunked in HTTP/1.0",
                text: "POST /x HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
            Probe(name: "space before colon", text: "\(post)Content-Length : 2\r\n\r\nhi"),
            Probe(name: "tab before colon", text: "\(post)Content-Length\t: 2\r\n\r\nhi"),
            Probe(name: "empty name", text: "\(post): x\r\n\r\n"),
            Probe(name: "line without colon", text: "\(post)nonsense\r\n\r\n"),
            Probe(name: "name with a bracket", text: "\(post)a[b: c\r\n\r\n"),
            Probe(name: "name beyond ASCII", text: "\(post)\u{e9}: c\r\n\r\n"),
            Probe(name: "folding with a space", text: "\(post)X-A: b\r\n c\r\n\r\n"),
            Probe(name: "folding with a tab", text: "\(post)X-A: b\r\n\tc\r\n\r\n"),
            Probe(name: "folding of the first line", text: "POST /x HTTP/1.1\r\n Host: a\r\n\r\n"),
            Probe(name: "bare line feeds", text: "GET / HTTP/1.1\nHost: a\n\n"),
            Probe(name: "bare line feed after a field", text: "\(post)X-A: b\nX-B: c\r\n\r\n"),
            Probe(name: "bare line feed ends the header", text: "GET / HTTP/1.1\r\nHost: a\r\n\n"),
            Probe(name: "bare carriage return in a value", text: "\(post)X-A: b\rX-B: c\r\n\r\n"),
            Probe(name: "NUL in a value", text: "\(post)X-A: b\0c\r\n\r\n"),
            Probe(name: "NUL in a name", text: "\(post)X\0A: c\r\n\r\n"),
            Probe(name: "NUL in the target", text: "GET /\0 HTTP/1.1\r\n\(host)\r\n"),
            Probe(name: "escape in a value", text: "\(post)X-A: b\u{1b}c\r\n\r\n"),
            Probe(name: "delete in a value", text: "\(post)X-A: b\u{7f}c\r\n\r\n"),
            Probe(name: "no Host", text: "GET / HTTP/1.1\r\n\r\n"),
            Probe(name: "two Hosts", text: "GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n"),
            Probe(name: "two Hosts in HTTP/1.0", text: "GET / HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n"),
            Probe(name: "Host with a path", text: "GET / HTTP/1.1\r\nHost: a/b\r\n\r\n"),
            Probe(name: "Host with a user", text: "GET / HTTP/1.1\r\nHost: a@b\r\n\r\n"),
            Probe(name: "Host with a list", text: "GET / HTTP/1.1\r\nHost: a, b\r\n\r\n"),
            Probe(name: "chunk size not hexadecimal", text: "\(chunked)g\r\nhi\r\n0\r\n\r\n"),
            Probe(name: "chunk size empty", text: "\(chunked)\r\nhi\r\n0\r\n\r\n"),
            Probe(name: "chunk size with 0x", text: "\(chunked)0x2\r\nhi\r\n0\r\n\r\n"),
            Probe(name: "chunk size with plus", text: "\(chunked)+2\r\nhi\r\n0\r\n\r\n"),
            Probe(name: "chunk size negative", text: "\(chunked)-2\r\nhi\r\n0\r\n\r\n"),
            Probe(name: "chunk size behind a space", text: "\(chunked) 2\r\nhi\r\n0\r\n\r\n"),
            Probe(name: "chunk size before a space", text: "\(chunked)2 \r\nhi\r\n0\r\n\r\n"),
            Probe(name: "chunk size of too many digits", text: "\(chunked)00000000000000002\r\nhi\r\n0\r\n\r\n"),
            Probe(name: "chunk size huge", text: "\(chunked)ffffffffffffffff\r\nhi\r\n", status: 413),
            Probe(name: "chunk size above the limit", text: "\(chunked)7fffffff\r\nhi\r\n", status: 413),
            Probe(name: "chunk size with a bare line feed", text: "\(chunked)2\nhi\r\n0\r\n\r\n"),
            Probe(name: "chunk extension with a bare line feed", text: "\(chunked)2;x\nhi\r\n0\r\n\r\n"),
            Probe(name: "chunk extension with NUL", text: "\(chunked)2;x\0\r\nhi\r\n0\r\n\r\n"),
            Probe(
                name: "chunk extension too long",
                text: "\(chunked)2;\(String(repeating: "x", count: 2000))\r\nhi\r\n0\r\n\r\n"),
            Probe(name: "chunk longer than its size", text: "\(chunked)2\r\nhi!\r\n0\r\n\r\n"),
            Probe(name: "chunk ended by a bare line feed", text: "\(chunked)2\r\nhi\n0\r\n\r\n"),
            Probe(name: "chunk ended by nothing", text: "\(chunked)2\r\nhi0\r\n\r\n"),
            Probe(name: "last chunk ended wrongly", text: "\(chunked)0\r\nX\r\n\r\n"),
            Probe(name: "trailer folded", text: "\(chunked)0\r\nX: y\r\n z\r\n\r\n"),
            Probe(name: "trailer with a bare line feed", text: "\(chunked)0\r\nX: y\n\r\n"),
            Probe(
                name: "trailer too long",
                text: "\(chunked)0\r\nX: \(String(repeating: "y", count: 5000))\r\n\r\n", status: 431),
            Probe(
                name: "oversized line",
                text: "GET /\(String(repeating: "a", count: 9000)) HTTP/1.1\r\n\(host)\r\n", status: 414),
            Probe(
                name: "oversized header", text: "\(post)X-A: \(String(repeating: "a", count: 17_000))\r\n\r\n",
                status: 431),
            Probe(
                name: "5,000 headers",
                text: post + (0..<5000).map { "X-\($0): a\r\n" }.joined() + "\r\n", status: 431),
            Probe(
                name: "oversized body",
                text: "\(post)Content-Length: 70000\r\n\r\n\(String(repeating: "a", count: 70_000))", status: 413),
            Probe(
                name: "oversized chunked body",
                text: "\(chunked)ffff\r\n\(String(repeating: "a", count: 65_535))\r\n2\r\nhi\r\n0\r\n\r\n",
                status: 413),
            Probe(name: "garbage", text: "\u{1}\u{2}\u{3} garbage \u{7f}\r\n\r\n"),
            Probe(name: "a TLS hello", text: "\u{16}\u{3}\u{1}\u{0}\u{5}hello"),
            Probe(name: "HTTP/0.9", text: "GET /\r\n"),
            Probe(name: "no version", text: "GET / \r\n\r\n"),
            Probe(name: "two spaces in the line", text: "GET  / HTTP/1.1\r\n\(host)\r\n"),
            Probe(name: "space at the line's end", text: "GET / HTTP/1.1 \r\n\(host)\r\n"),
            Probe(name: "space before the method", text: " GET / HTTP/1.1\r\n\(host)\r\n"),
            Probe(name: "tab in the line", text: "GET\t/ HTTP/1.1\r\n\(host)\r\n"),
            Probe(name: "two empty lines first", text: "\r\n\r\nGET / HTTP/1.1\r\n\(host)\r\n"),
            Probe(name: "lower-case version", text: "GET / http/1.1\r\n\(host)\r\n"),
            Probe(name: "version with two digits", text: "GET / HTTP/1.10\r\n\(host)\r\n"),
            Probe(name: "version without a minor", text: "GET / HTTP/1\r\n\(host)\r\n"),
            Probe(name: "a fragment", text: "GET /#a HTTP/1.1\r\n\(host)\r\n"),
            Probe(name: "a target beyond ASCII", text: "GET /\u{e9} HTTP/1.1\r\n\(host)\r\n"),
            Probe(name: "absolute target", text: "GET http://a/ HTTP/1.1\r\n\(host)\r\n"),
            Probe(name: "relative target", text: "GET a HTTP/1.1\r\n\(host)\r\n"),
            Probe(name: "asterisk for GET", text: "GET * HTTP/1.1\r\n\(host)\r\n"),
            Probe(name: "HTTP/9.9", text: "GET / HTTP/9.9\r\n\(host)\r\n", status: 505),
            Probe(name: "HTTP/1.2", text: "GET / HTTP/1.2\r\n\(host)\r\n", status: 505),
            Probe(name: "HTTP/2 preface", text: "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", status: 505),
            Probe(name: "TRACE", text: "TRACE / HTTP/1.1\r\n\(host)\r\n", status: 501),
            Probe(name: "CONNECT", text: "CONNECT a:1 HTTP/1.1\r\n\(host)\r\n", status: 501),
            Probe(name: "lower-case method", text: "get / HTTP/1.1\r\n\(host)\r\n", status: 501),
            Probe(
                name: "endless method", text: "\(String(repeating: "A", count: 40)) / HTTP/1.1\r\n\(host)\r\n",
                status: 501),
            Probe(
                name: "unknown expectation", text: "\(post)Expect: 200-ok\r\nContent-Length: 2\r\n\r\nhi", status: 417),
        ]
    }()

    @Test(arguments: refused) func isRefusedAndTheConnectionClosed(_ probe: Probe) async throws {
        try await ServerFixture.run { fixture in
            let response = try await fixture.refusal(probe.text)
            #expect(response.status == probe.status, "\(response.text)")
            let counters = try await fixture.counters()
            #expect(counters.requests == 0)
            #expect(counters.badRequests == 1)
        }
    }

    struct Accepted: Sendable, CustomTestStringConvertible {
        let name: String
        let text: String
        var path = "/x"
        var body = ""
        var closes = false
        var testDescription: String { name }
    }

    static let accepted: [Accepted] = {
        let post = "POST /x HTTP/1.1\r\n\(host)"
        let chunked = "\(post)Transfer-Encoding: chunked\r\n\r\n"
        return [
            Accepted(name: "one length", text: "\(post)Content-Length: 2\r\n\r\nhi", body: "hi"),
            Accepted(name: "length with zeros", text: "\(post)content-LENGTH:0002\t\r\n\r\nhi", body: "hi"),
            Accepted(name: "no body", text: "\(post)\r\n"),
            Accepted(name: "empty line first", text: "\r\n\(post)\r\n"),
            Accepted(name: "query", text: "GET /x?a=b?c HTTP/1.1\r\n\(host)\r\n", path: "/x?a=b?c"),
            Accepted(name: "asterisk", text: "OPTIONS * HTTP/1.1\r\n\(host)\r\n", path: "*"),
            Accepted(
                name: "chunked", text: "\(chunked)2\r\nhi\r\n0A;x=\"y\"\r\n0123456789\r\n0\r\n\r\n",
                body: "hi0123456789"),
            Accepted(name: "chunked in any case", text: "\(post)transfer-encoding: CHUNKED\r\n\r\n0\r\n\r\n"),
            Accepted(
                name: "trailers", text: "\(chunked)1\r\na\r\n000;z\r\nContent-Length: 5\r\nX:\r\n\r\n", body: "a"),
            Accepted(name: "HTTP/1.0 without Host", text: "GET /x HTTP/1.0\r\n\r\n", closes: true),
            Accepted(
                name: "HTTP/1.0 with keep-alive", text: "GET /x HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
                closes: true),
            Accepted(name: "close", text: "GET /x HTTP/1.1\r\n\(host)Connection: x, Close\r\n\r\n", closes: true),
            Accepted(name: "Host of IPv6", text: "GET /x HTTP/1.1\r\nHost: [::1]:80\r\n\r\n"),
            Accepted(name: "empty Host", text: "GET /x HTTP/1.1\r\nHost:\r\n\r\n"),
            Accepted(name: "value beyond ASCII", text: "\(post)X-A: \u{e9}\r\n\r\n"),
        ]
    }()

    @Test(arguments: accepted) func isUnderstood(_ probe: Accepted) async throws {
        try await ServerFixture.run { fixture in
            for bytewise in [false, true] {
                let client = try await fixture.connect()
                if bytewise {
                    for byte in probe.text.utf8 { try await client.send([byte]) }
                } else {
                    try await client.send(probe.text)
                }
                let response = try await client.readResponse()
                #expect(response.status == 200)
                #expect(response.first("x-path") == probe.path)
                #expect(response.text == probe.body)
                #expect(response.first("connection") == (probe.closes ? "close" : nil))
                if probe.closes {
                    let rest = try await client.readToEnd()
                    #expect(rest.isEmpty)
                }
            }
        }
    }

    @Test func aRequestSmuggledInABodyIsNeverServed() async throws {
        try await ServerFixture.run { fixture in
            let inner = "GET /admin HTTP/1.1\r\nHost: a\r\n\r\n"
            let text =
                "POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: \(inner.utf8.count)\r\n"
                + "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n\(inner)"
            let response = try await fixture.refusal(text)
            let counters = try await fixture.counters()
            #expect(response.status == 400)
            #expect(counters.requests == 0)
        }
    }
}
