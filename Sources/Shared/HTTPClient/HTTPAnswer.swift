/// What came of a call.
package enum HTTPCallResult: Equatable, Sendable {
    case answered(HTTPAnswer)
    case failed(HTTPCallFailure)
}

/// A whole answer, whatever its status.
package struct HTTPAnswer: Equatable, Sendable {
    package let status: Int
    package let body: [UInt8]
    /// Seconds from now, whether the header said seconds or a date; nil without one, and for one that has passed.
    package let retryAfterSeconds: Int64?
    /// 10, 11 or 20.
    package let version: Int
    /// Whether this call opened the connection that it used.
    package let connected: Bool

    package init(
        status: Int, body: [UInt8], retryAfterSeconds: Int64? = nil, version: Int = 11, connected: Bool = false
    ) {
        self.status = status
        self.body = body
        self.retryAfterSeconds = retryAfterSeconds
        self.version = version
        self.connected = connected
    }
}

/// Why there is no whole answer.
package struct HTTPCallFailure: Error, Equatable, Sendable {
    package enum Code: Equatable, Sendable {
        /// Not within the deadline. The server may have done what it was asked.
        case late
        /// The body is longer than the limit; its status is known.
        case tooLong(status: Int)
        /// No address, no connection, no trust in the certificate, or a connection that broke.
        case unreachable
        /// The caller is closed.
        case closed
    }

    package let code: Code
    /// For an operator; holds neither body nor answer.
    package let message: String

    package init(_ code: Code, _ message: String) {
        self.code = code
        self.message = message
    }
}
