/// Everything of a request but its body: what the limits and the error answers are decided on.
package struct HTTPRequestHead: Sendable {
    package let method: HTTPMethod
    package let headers: HTTPHeaders
    /// True for HTTP/1.0, which is answered and closed; everything else that gets this far is HTTP/1.1.
    package let isHTTP10: Bool
    /// Where the target stands in the headers' buffer.
    private let pathPlace: Range<Int>
    private let queryPlace: Range<Int>?

    /// The parser's way in: the ranges lie inside the headers' buffer, because the parser measured them while filling it.
    init(method: HTTPMethod, headers: HTTPHeaders, path: Range<Int>, query: Range<Int>?, isHTTP10: Bool) {
        self.method = method
        self.headers = headers
        self.isHTTP10 = isHTTP10
        pathPlace = path
        queryPlace = query
    }

    package init(
        method: HTTPMethod, path: String, query: String? = nil, headers: HTTPHeaders = HTTPHeaders(),
        isHTTP10: Bool = false
    ) {
        let (placed, path) = headers.appending(path)
        let (whole, query) = query.map { placed.appending($0) } ?? (placed, nil)
        self.init(method: method, headers: whole, path: path, query: query, isHTTP10: isHTTP10)
    }

    /// The target up to "?", as sent: not decoded, visible ASCII, starts with "/", its escapes well formed. Made anew by
    /// each call; `isPath` compares without making it.
    package var path: String { headers.text(pathPlace) }
    /// What follows the first "?", as sent; nil when there is none.
    package var query: String? { queryPlace.map { headers.text($0) } }

    /// Whether `path` is this one, byte by byte.
    package func isPath(_ path: StaticString) -> Bool { headers.isText(pathPlace, path) }
}

/// One complete request, its body decoded from whichever framing it came in.
package struct HTTPRequest: Sendable {
    package let head: HTTPRequestHead
    /// The content; trailers and chunk extensions are gone.
    package let body: [UInt8]
    /// Who sent it: the proxy, when there is one in front.
    package let peer: PeerAddress

    package init(head: HTTPRequestHead, body: [UInt8], peer: PeerAddress) {
        self.head = head
        self.body = body
        self.peer = peer
    }

    /// Builds a request by hand, for tests of handlers.
    package init(
        method: HTTPMethod, path: String, query: String? = nil, headers: HTTPHeaders = HTTPHeaders(),
        body: [UInt8] = [], peer: PeerAddress = PeerAddress(ipv4: 127, 0, 0, 1)
    ) {
        head = HTTPRequestHead(method: method, path: path, query: query, headers: headers)
        self.body = body
        self.peer = peer
    }

    package var method: HTTPMethod { head.method }
    /// See `HTTPRequestHead.path`.
    package var path: String { head.path }
    package var query: String? { head.query }
    package var headers: HTTPHeaders { head.headers }
    package var isHTTP10: Bool { head.isHTTP10 }
}
