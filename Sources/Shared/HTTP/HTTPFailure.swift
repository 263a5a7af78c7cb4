/// Why the server itself answers a connection, without asking the handler. All of them close the connection.
package struct HTTPFailure: Error, Sendable, Equatable {
    package enum Code: Sendable, Hashable, CaseIterable {
        /// 400: the message breaks the grammar or its framing could be read in two ways.
        case malformedRequest
        /// 408: the header or the body did not arrive in time.
        case requestTimeout
        /// 413: the body is, or says it is, larger than the limit of its path.
        case bodyTooLarge
        /// 414: the request line is longer than the limit.
        case targetTooLong
        /// 417: an Expect other than 100-continue.
        case expectationFailed
        /// 431: more header bytes or fields, or trailer bytes, than the limits.
        case headerTooLarge
        /// 500: the handler's answer can't be sent as HTTP.
        case invalidResponse
        /// 501: a method that nothing here supports.
        case methodNotImplemented
        /// 503: the limit of connections, in all or of this address, is met.
        case tooManyConnections
        /// 505: a version other than HTTP/1.0 and HTTP/1.1.
        case versionNotSupported

        package var status: Int {
            switch self {
            case .malformedRequest: 400
            case .requestTimeout: 408
            case .bodyTooLarge: 413
            case .targetTooLong: 414
            case .expectationFailed: 417
            case .headerTooLarge: 431
            case .invalidResponse: 500
            case .methodNotImplemented: 501
            case .tooManyConnections: 503
            case .versionNotSupported: 505
            }
        }
    }

    package let code: Code
    /// One line for the person who wrote the client: which rule was broken. Holds nothing of what was sent.
    package let message: String

    package init(_ code: Code, _ message: String) {
        self.code = code
        self.message = message
    }

    package var status: Int { code.status }

    /// The answer when the configuration has none of its own: the message as plain text, and Retry-After where trying
    /// again can help.
    package var plainResponse: HTTPResponse {
        HTTPResponse(
            status: status, headers: code == .tooManyConnections ? [("Retry-After", "1")] : [], text: message)
    }
}
