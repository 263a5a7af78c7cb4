/// A handler's answer. The server adds Content-Length, Date and, when the connection ends, Connection: close.
package struct HTTPResponse: Sendable {
    /// 200...599. Another number is answered as 500.
    package var status: Int
    /// Sent in this order. A name that is no token or a value with a control byte turns the answer into a 500: it
    /// would let a caller's text end the header. Content-Length, Date, Transfer-Encoding and Keep-Alive are the
    /// server's own and dropped; "Connection: close" closes the connection after this answer.
    package var headers: [(String, String)]
    /// Sent before `headers`.
    package var block: HTTPHeaderBlock?
    /// Left out of the answer to HEAD (its length is still told) and of 204 and 304.
    package var body: [UInt8]

    package init(
        status: Int, block: HTTPHeaderBlock? = nil, headers: [(String, String)] = [], body: [UInt8] = []
    ) {
        self.status = status
        self.block = block
        self.headers = headers
        self.body = body
    }

    /// One line of plain text, ended by a line feed.
    package init(status: Int, headers: [(String, String)] = [], text: String) {
        self.init(
            status: status, headers: [("Content-Type", "text/plain; charset=utf-8")] + headers,
            body: Array((text + "\n").utf8))
    }
}
