/// Requests on the wire, written byte by byte: those no server may serve, and those with one meaning. Shared by the
/// tests of the server and by its comparison with another one.
package enum FramingProbes {
    private static let host = "Host: a\r\n"

    /// Refused with this status, and the connection closed.
    package struct Refused: Sendable, CustomStringConvertible {
        package let name: String
        package let text: String
        package let status: Int
        package var description: String { name }

        fileprivate init(name: String, text: String, status: Int = 400) {
            self.name = name
            self.text = text
            self.status = status
        }
    }

    /// Served, and understood as said.
    package struct Accepted: Sendable, CustomStringConvertible {
        package let name: String
        package let text: String
        /// The target as the handler sees it.
        package let path: String
        package let body: String
        /// Whether the answer ends the connection.
        package let closes: Bool
        package var description: String { name }

        fileprivate init(name: String, text: String, path: String = "/x", body: String = "", closes: Bool = false) {
            self.name = name
            self.text = text
            self.path = path
            self.body = body
            self.closes = closes
        }
    }

    package static let refused: [Refused] = {
        let post = "POST /x HTTP/1.1\r\n\(host)"
        let chunked = "\(post)Transfer-Encoding: chunked\r\n\r\n"
        return [
            Refused(name: "two equal lengths", text: "\(post)Content-Length: 2\r\nContent-Length: 2\r\n\r\nhi"),
            Refused(name: "two differing lengths", text: "\(post)Content-Length: 2\r\nContent-Length: 3\r\n\r\nhi!"),
            Refused(name: "a list of lengths", text: "\(post)Content-Length: 2, 2\r\n\r\nhi"),
            Refused(name: "length with a plus", text: "\(post)Content-Length: +2\r\n\r\nhi"),
            Refused(name: "length in hexadecimal", text: "\(post)Content-Length: 0x2\r\n\r\nhi"),
            Refused(name: "negative length", text: "\(post)Content-Length: -1\r\n\r\nhi"),
            Refused(name: "empty length", text: "\(post)Content-Length:\r\n\r\nhi"),
            Refused(name: "length with a space inside", text: "\(post)Content-Length: 1 2\r\n\r\nhi"),
            Refused(name: "length with a fraction", text: "\(post)Content-Length: 2.0\r\n\r\nhi"),
            Refused(
                name: "huge length", text: "\(post)Content-Length: 99999999999999999999999\r\n\r\nhi", status: 413),
            Refused(name: "largest length", text: "\(post)Content-Length: 9223372036854775807\r\n\r\nhi", status: 413),
            Refused(
                name: "length beside chunked",
                text: "\(post)Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
            Refused(
                name: "chunked beside length",
                text: "\(post)Transfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n0\r\n\r\n"),
            Refused(name: "gzip, chunked", text: "\(post)Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"),
            Refused(name: "xchunked", text: "\(post)Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n"),
            Refused(name: "identity", text: "\(post)Transfer-Encoding: identity\r\n\r\n"),
            Refused(name: "empty transfer encoding", text: "\(post)Transfer-Encoding:\r\n\r\n"),
            Refused(name: "chunked, chunked", text: "\(post)Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n"),
            Refused(
                name: "chunked twice",
                text: "\(post)Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
            Refused(
                name: "chunked and identity",
                text: "\(post)Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n"),
            Refused(
                name: "chunked with vertical tab", text: "\(post)Transfer-Encoding: \u{b}chunked\r\n\r\n0\r\n\r\n"),
            Refused(
                name: "chunked in HTTP/1.0",
                text: "POST /x HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
            Refused(name: "space before colon", text: "\(post)Content-Length : 2\r\n\r\nhi"),
            Refused(name: "tab before colon", text: "\(post)Content-Length\t: 2\r\n\r\nhi"),
            Refused(name: "empty name", text: "\(post): x\r\n\r\n"),
            Refused(name: "line without colon", text: "\(post)nonsense\r\n\r\n"),
            Refused(name: "name with a bracket", text: "\(post)a[b: c\r\n\r\n"),
            Refused(name: "name beyond ASCII", text: "\(post)\u{e9}: c\r\n\r\n"),
            Refused(name: "folding with a space", text: "\(post)X-A: b\r\n c\r\n\r\n"),
            Refused(name: "folding with a tab", text: "\(post)X-A: b\r\n\tc\r\n\r\n"),
            Refused(name: "folding of the first line", text: "POST /x HTTP/1.1\r\n Host: a\r\n\r\n"),
            Refused(name: "bare line feeds", text: "GET / HTTP/1.1\nHost: a\n\n"),
            Refused(name: "bare line feed after a field", text: "\(post)X-A: b\nX-B: c\r\n\r\n"),
            Refused(name: "bare line feed ends the header", text: "GET / HTTP/1.1\r\nHost: a\r\n\n"),
            Refused(name: "bare carriage return in a value", text: "\(post)X-A: b\rX-B: c\r\n\r\n"),
            Refused(name: "NUL in a value", text: "\(post)X-A: b\0c\r\n\r\n"),
            Refused(name: "NUL in a name", text: "\(post)X\0A: c\r\n\r\n"),
            Refused(name: "NUL in the target", text: "GET /\0 HTTP/1.1\r\n\(host)\r\n"),
            Refused(name: "escape in a value", text: "\(post)X-A: b\u{1b}c\r\n\r\n"),
            Refused(name: "delete in a value", text: "\(post)X-A: b\u{7f}c\r\n\r\n"),
            Refused(name: "no Host", text: "GET / HTTP/1.1\r\n\r\n"),
            Refused(name: "two Hosts", text: "GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n"),
            Refused(name: "two Hosts in HTTP/1.0", text: "GET / HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n"),
            Refused(name: "Host with a path", text: "GET / HTTP/1.1\r\nHost: a/b\r\n\r\n"),
            Refused(name: "Host with a user", text: "GET / HTTP/1.1\r\nHost: a@b\r\n\r\n"),
            Refused(name: "Host with a list", text: "GET / HTTP/1.1\r\nHost: a, b\r\n\r\n"),
            Refused(name: "chunk size not hexadecimal", text: "\(chunked)g\r\nhi\r\n0\r\n\r\n"),
            Refused(name: "chunk size empty", text: "\(chunked)\r\nhi\r\n0\r\n\r\n"),
            Refused(name: "chunk size with 0x", text: "\(chunked)0x2\r\nhi\r\n0\r\n\r\n"),
            Refused(name: "chunk size with plus", text: "\(chunked)+2\r\nhi\r\n0\r\n\r\n"),
            Refused(name: "chunk size negative", text: "\(chunked)-2\r\nhi\r\n0\r\n\r\n"),
            Refused(name: "chunk size behind a space", text: "\(chunked) 2\r\nhi\r\n0\r\n\r\n"),
            Refused(name: "chunk size before a space", text: "\(chunked)2 \r\nhi\r\n0\r\n\r\n"),
            Refused(name: "chunk size of too many digits", text: "\(chunked)00000000000000002\r\nhi\r\n0\r\n\r\n"),
            Refused(name: "chunk size huge", text: "\(chunked)ffffffffffffffff\r\nhi\r\n", status: 413),
            Refused(name: "chunk size above the limit", text: "\(chunked)7fffffff\r\nhi\r\n", status: 413),
            Refused(name: "chunk size with a bare line feed", text: "\(chunked)2\nhi\r\n0\r\n\r\n"),
            Refused(name: "chunk extension with a bare line feed", text: "\(chunked)2;x\nhi\r\n0\r\n\r\n"),
            Refused(name: "chunk extension with NUL", text: "\(chunked)2;x\0\r\nhi\r\n0\r\n\r\n"),
            Refused(
                name: "chunk extension too long",
                text: "\(chunked)2;\(String(repeating: "x", count: 2000))\r\nhi\r\n0\r\n\r\n"),
            Refused(name: "chunk longer than its size", text: "\(chunked)2\r\nhi!\r\n0\r\n\r\n"),
            Refused(name: "chunk ended by a bare line feed", text: "\(chunked)2\r\nhi\n0\r\n\r\n"),
            Refused(name: "chunk ended by nothing", text: "\(chunked)2\r\nhi0\r\n\r\n"),
            Refused(name: "last chunk ended wrongly", text: "\(chunked)0\r\nX\r\n\r\n"),
            Refused(name: "trailer folded", text: "\(chunked)0\r\nX: y\r\n z\r\n\r\n"),
            Refused(name: "trailer with a bare line feed", text: "\(chunked)0\r\nX: y\n\r\n"),
            Refused(
                name: "trailer too long",
                text: "\(chunked)0\r\nX: \(String(repeating: "y", count: 5000))\r\n\r\n", status: 431),
            Refused(
                name: "oversized line",
                text: "GET /\(String(repeating: "a", count: 9000)) HTTP/1.1\r\n\(host)\r\n", status: 414),
            Refused(
                name: "oversized header", text: "\(post)X-A: \(String(repeating: "a", count: 17_000))\r\n\r\n",
                status: 431),
            Refused(
                name: "5,000 headers",
                text: post + (0..<5000).map { "X-\($0): a\r\n" }.joined() + "\r\n", status: 431),
            Refused(
                name: "oversized body",
                text: "\(post)Content-Length: 70000\r\n\r\n\(String(repeating: "a", count: 70_000))", status: 413),
            Refused(
                name: "oversized chunked body",
                text: "\(chunked)ffff\r\n\(String(repeating: "a", count: 65_535))\r\n2\r\nhi\r\n0\r\n\r\n",
                status: 413),
            Refused(name: "garbage", text: "\u{1}\u{2}\u{3} garbage \u{7f}\r\n\r\n"),
            Refused(name: "a TLS hello", text: "\u{16}\u{3}\u{1}\u{0}\u{5}hello"),
            Refused(name: "HTTP/0.9", text: "GET /\r\n"),
            Refused(name: "no version", text: "GET / \r\n\r\n"),
            Refused(name: "two spaces in the line", text: "GET  / HTTP/1.1\r\n\(host)\r\n"),
            Refused(name: "space at the line's end", text: "GET / HTTP/1.1 \r\n\(host)\r\n"),
            Refused(name: "space before the method", text: " GET / HTTP/1.1\r\n\(host)\r\n"),
            Refused(name: "tab in the line", text: "GET\t/ HTTP/1.1\r\n\(host)\r\n"),
            Refused(name: "two empty lines first", text: "\r\n\r\nGET / HTTP/1.1\r\n\(host)\r\n"),
            Refused(name: "lower-case version", text: "GET / http/1.1\r\n\(host)\r\n"),
            Refused(name: "version with two digits", text: "GET / HTTP/1.10\r\n\(host)\r\n"),
            Refused(name: "version without a minor", text: "GET / HTTP/1\r\n\(host)\r\n"),
            Refused(name: "a fragment", text: "GET /#a HTTP/1.1\r\n\(host)\r\n"),
            Refused(name: "a target beyond ASCII", text: "GET /\u{e9} HTTP/1.1\r\n\(host)\r\n"),
            Refused(name: "absolute target", text: "GET http://a/ HTTP/1.1\r\n\(host)\r\n"),
            Refused(name: "relative target", text: "GET a HTTP/1.1\r\n\(host)\r\n"),
            Refused(name: "asterisk for OPTIONS", text: "OPTIONS * HTTP/1.1\r\n\(host)\r\n"),
            Refused(name: "path with a broken escape", text: "GET /%zz HTTP/1.1\r\n\(host)\r\n"),
            Refused(name: "path with a cut escape", text: "GET /%2 HTTP/1.1\r\n\(host)\r\n"),
            Refused(name: "path with an escape cut by the query", text: "GET /%2?0 HTTP/1.1\r\n\(host)\r\n"),
            Refused(name: "path with an escaped NUL", text: "GET /a%00 HTTP/1.1\r\n\(host)\r\n"),
            Refused(name: "empty Host", text: "GET / HTTP/1.1\r\nHost:\r\n\r\n"),
            Refused(name: "tab before a length", text: "\(post)Content-Length:\t2\r\n\r\nhi"),
            Refused(name: "tab behind chunked", text: "\(post)Transfer-Encoding: chunked\t\r\n\r\n0\r\n\r\n"),
            Refused(name: "asterisk for GET", text: "GET * HTTP/1.1\r\n\(host)\r\n"),
            Refused(name: "HTTP/9.9", text: "GET / HTTP/9.9\r\n\(host)\r\n", status: 505),
            Refused(name: "HTTP/1.2", text: "GET / HTTP/1.2\r\n\(host)\r\n", status: 505),
            Refused(name: "HTTP/2 preface", text: "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", status: 505),
            Refused(name: "TRACE", text: "TRACE / HTTP/1.1\r\n\(host)\r\n", status: 501),
            Refused(name: "CONNECT", text: "CONNECT a:1 HTTP/1.1\r\n\(host)\r\n", status: 501),
            Refused(name: "lower-case method", text: "get / HTTP/1.1\r\n\(host)\r\n", status: 501),
            Refused(
                name: "endless method", text: "\(String(repeating: "A", count: 40)) / HTTP/1.1\r\n\(host)\r\n",
                status: 501),
            Refused(
                name: "unknown expectation", text: "\(post)Expect: 200-ok\r\nContent-Length: 2\r\n\r\nhi", status: 417),
        ]
    }()

    package static let accepted: [Accepted] = {
        let post = "POST /x HTTP/1.1\r\n\(host)"
        let chunked = "\(post)Transfer-Encoding: chunked\r\n\r\n"
        return [
            Accepted(name: "one length", text: "\(post)Content-Length: 2\r\n\r\nhi", body: "hi"),
            Accepted(name: "length with zeros", text: "\(post)content-LENGTH:0002 \r\n\r\nhi", body: "hi"),
            Accepted(name: "no body", text: "\(post)\r\n"),
            Accepted(name: "empty line first", text: "\r\n\(post)\r\n"),
            Accepted(
                name: "escapes", text: "GET /a%20%c3%A9?%zz HTTP/1.1\r\n\(host)\r\n", path: "/a%20%c3%A9?%zz"),
            Accepted(name: "query", text: "GET /x?a=b?c HTTP/1.1\r\n\(host)\r\n", path: "/x?a=b?c"),
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
            Accepted(name: "value beyond ASCII", text: "\(post)X-A: \u{e9}\r\n\r\n"),
        ]
    }()
}
