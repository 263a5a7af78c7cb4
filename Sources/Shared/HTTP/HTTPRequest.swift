/// Everything of a request but its body: what the limits and the error answers are decided on.
package struct HTTPRequestHead: Sendable {
    package let method: HTTPMethod
    /// The target up to "?", as sent: not decoded, visible ASCII, starts with "/", its escapes well formed.
    package let path: String
    /// What follows the first "?", as sent; nil when there is none.
    package let query: String?
    package let headers: HTTPHeaders
    /// True for HTTP/1.0, which is answered and closed; everything else that gets this far is HTTP/1.1.
    package let isHTTP10: Bool

    package init(
        method: HTTPMethod, path: String, query: String? = nil, headers: HTTPHeaders = HTTPHeaders(),
        isHTTP10: Bool = false
    ) {
        self.method = method
        self.path = path
        self.query = query
        self.headers = headers
        self.isHTTP10 = isHTTP10
    }
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
    package var path: String { head.path }
    package var query: String? { head.query }
    package var headers: HTTPHeaders { head.headers }
    package var isHTTP10: Bool { head.isHTTP10 }
}
