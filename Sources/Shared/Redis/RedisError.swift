/// Why a command has no reply, or a reply that is an error.
package struct RedisError: Error, Sendable, Equatable, CustomStringConvertible {
    package enum Code: Sendable, Equatable {
        /// No connection, too much in flight, or the connection was lost before the reply came. In the last case the
        /// command may or may not have run.
        case unavailable
        /// The deadline passed before the reply came. The command may or may not have run, or may run later; its
        /// connection has been closed.
        case timeout
        /// Redis answered with an error; the first word of it, for example `OOM`, `NOSCRIPT`, `READONLY`, `LOADING`,
        /// `MASTERDOWN`, `MISCONF`, `UNBLOCKED`, `NOGROUP`, `CROSSSLOT`, `WRONGTYPE`, `ERR`.
        case server(String)
        /// The peer sent what is no RESP2 reply, or one beyond the client's limits (depth 7, `maxReplyBytes`). The
        /// connection has been closed; the command may have run.
        case protocolViolation
        /// The client was closed, before or while the command waited. It may have run when it was already sent.
        case closed
        /// The text is no address of a Redis server.
        case invalidAddress
    }

    package let code: Code
    /// For people. Holds no password and no argument of a command.
    package let message: String

    package init(code: Code, message: String) {
        self.code = code
        self.message = message
    }

    init(_ error: RedisServerError) {
        self.init(code: .server(error.prefix), message: error.message)
    }

    /// Whether the same command may succeed later without anybody changing it. A command that is not safe to repeat
    /// needs more thought: see the codes about what may have run.
    package var isRetryable: Bool {
        switch code {
        case .unavailable, .timeout: true
        case .server(let prefix): Self.passing.contains(prefix)
        case .protocolViolation, .closed, .invalidAddress: false
        }
    }

    /// Error words that tell of the server's state, not of the command.
    private static let passing: Set<String> = [
        "BUSY", "CLUSTERDOWN", "LOADING", "MASTERDOWN", "MISCONF", "NOREPLICAS", "NOSCRIPT", "OOM", "READONLY",
        "TRYAGAIN", "UNBLOCKED",
    ]

    /// Error words after which this server is the wrong one to talk to: it lost its role or has no data yet. The
    /// connection is dropped and the address resolved anew, since the same name may lead to another server by now.
    private static let leaving: Set<String> = ["LOADING", "MASTERDOWN", "READONLY", "UNBLOCKED"]

    var leavesServer: Bool {
        if case .server(let prefix) = code { Self.leaving.contains(prefix) } else { false }
    }

    package var description: String {
        switch code {
        case .unavailable: "redis unavailable: \(message)"
        case .timeout: "redis timeout: \(message)"
        case .server: "redis answered: \(message)"
        case .protocolViolation: "redis protocol: \(message)"
        case .closed: "redis client closed: \(message)"
        case .invalidAddress: "redis address: \(message)"
        }
    }
}
