package import HTTP

/// Everything that the parser makes of a stream of bytes: the same however they were split.
package struct HTTPOutcome: Equatable, Sendable {
    /// One request.
    package struct Message: Equatable, Sendable {
        package var method: String
        package var path: String
        package var query: String?
        package var isHTTP10: Bool
        /// `name: value`, in the order they came.
        package var fields: [String]
        package var body: [UInt8]
        package var closes: Bool

        package init(
            method: String, path: String, query: String?, isHTTP10: Bool, fields: [String], body: [UInt8], closes: Bool
        ) {
            self.method = method
            self.path = path
            self.query = query
            self.isHTTP10 = isHTTP10
            self.fields = fields
            self.body = body
            self.closes = closes
        }
    }

    package var messages: [Message] = []
    package var failure: HTTPFailure?
    /// Where parsing ended: behind everything, or at the byte that failed.
    package var consumed = 0
    package var isBetweenRequests = true

    /// That of no bytes.
    package init() {}

    /// The most bytes a body may have here.
    package static let maximumBodyBytes = 300

    /// Small limits, so that short inputs reach them.
    package static let limits = {
        var limits = HTTPServerConfiguration()
        limits.maxRequestLineBytes = 200
        limits.maxHeaderBytes = 400
        limits.maxHeaders = 8
        limits.maxTrailerBytes = 60
        limits.maxChunkExtensionBytes = 20
        return limits
    }()

    /// Feeds a new parser piece by piece. Throws when it leaves bytes without a reason, or goes on after a failure.
    package init(
        of pieces: [ArraySlice<UInt8>], limits: HTTPServerConfiguration = limits
    ) throws(BrokenProperty) {
        var parser = HTTPRequestParser(limits: limits)
        for piece in pieces {
            let bytes = Array(piece)
            var offset = 0
            loop: while true {
                switch parser.parse(bytes.span, from: &offset, bodyLimit: { _ in Self.maximumBodyBytes }) {
                case .needsMore:
                    try require(offset == bytes.count, "bytes were left without a reason")
                    break loop
                case .request(let head, let body):
                    messages.append(Message(head, body: body, closes: parser.shouldClose))
                case .failure(let failure):
                    self.failure = failure
                    consumed += offset
                    // A second call takes nothing and says the same.
                    var again = offset
                    let step = parser.parse(bytes.span, from: &again, bodyLimit: { _ in Self.maximumBodyBytes })
                    guard case .failure(failure) = step, again == offset else {
                        throw BrokenProperty("a failure did not stay")
                    }
                    return
                }
            }
            consumed += offset
        }
        isBetweenRequests = parser.isBetweenRequests
    }

    /// Throws when a request was let through that no server behind may see.
    package func checkMessages() throws(BrokenProperty) {
        for message in messages {
            try require(message.body.count <= Self.maximumBodyBytes, "a body beyond its limit")
            try require(message.fields.count <= Self.limits.maxHeaders, "more fields than the limit")
            try require(message.path.utf8.first == 0x2F, "a target that is no path")
            try require(
                message.count(of: "content-length:") + message.count(of: "transfer-encoding:") <= 1,
                "a body that is framed twice")
            let hosts = message.count(of: "host:")
            try require(hosts == 1 || message.isHTTP10 && hosts == 0, "\(hosts) Host fields")
            try require(
                !message.fields.contains { $0.utf8.contains { $0 < 0x20 && $0 != 0x09 || $0 == 0x7F } },
                "a control byte in a field")
        }
    }
}

extension HTTPOutcome.Message {
    fileprivate init(_ head: HTTPRequestHead, body: [UInt8], closes: Bool) {
        self.init(
            method: head.method.rawValue, path: head.path, query: head.query, isHTTP10: head.isHTTP10,
            fields: (0..<head.headers.count).map { "\(head.headers[$0].name): \(head.headers[$0].value)" }, body: body,
            closes: closes)
    }

    fileprivate func count(of name: String) -> Int { fields.count { $0.utf8.starts(with: name.utf8) } }
}
