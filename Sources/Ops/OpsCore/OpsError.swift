internal import Postgres
internal import Redis
internal import Service
internal import Store

/// Why an operator's question has no answer, or an order was not carried out.
package struct OpsError: Error, Equatable, Sendable, CustomStringConvertible {
    /// The raw values are what scripts see: add, never rename.
    package enum Code: String, Sendable {
        /// The question is badly put: an id outside its rule, an unknown name.
        case usage
        /// A setting or file that must be mended first.
        case configuration
        /// Redis or Postgres can't be reached, or is not as this program needs it.
        case dependencyAway = "dependency_away"
        /// What the question names does not exist.
        case notFound = "not_found"
        /// A fault of the program itself.
        case internalFault = "internal_fault"
    }

    package let code: Code
    /// One line for an operator. May hold what was typed or stored, so faces escape it.
    package let message: String

    package init(_ code: Code, _ message: String) {
        self.code = code
        self.message = message
    }

    package var description: String { message }
    /// Whether the same call may succeed later without anybody changing anything.
    package var retryCanHelp: Bool { code == .dependencyAway }

    /// The exit code that a command ends with because of this error.
    package var exitCode: Int32 {
        switch code {
        case .usage, .configuration: ExitCode.usage
        case .dependencyAway: ExitCode.dependencyAway
        case .notFound: ExitCode.notFound
        case .internalFault: ExitCode.internalFault
        }
    }

    /// Any error of the modules below, in an operator's words.
    package init(_ error: any Error) {
        switch error {
        case let error as OpsError: self = error
        case let error as ServiceError: self.init(error)
        case let error as PostgresError: self.init(error)
        case let error as StoreError:
            if let cause = error.cause { self.init(cause) } else { self.init(.configuration, error.message) }
        case let error as RedisError: self.init(error)
        default: self.init(.internalFault, "\(error)")
        }
    }

    private init(_ error: ServiceError) {
        let message = error.message.split(separator: "\n").joined(separator: "; ")
        switch error.code {
        case .configuration: self.init(.configuration, message)
        case .dependencyAway: self.init(.dependencyAway, message)
        case .internalFault: self.init(.internalFault, message)
        }
    }

    private init(_ error: PostgresError) {
        let text = Self.oneLine(error.description)
        switch error.code {
        case .connection: self.init(.dependencyAway, "postgres is away (RATCHET_PG): \(text)")
        case .deadline: self.init(.dependencyAway, "postgres gave no answer in time: \(text)")
        case .usage: self.init(.internalFault, "postgres: \(text)")
        case .server where Self.tellsOfOldSchema(error):
            self.init(.dependencyAway, "the schema is missing or not up to date, run: ratchet migrate (\(text))")
        case .server where error.outcome == .permanent: self.init(.usage, "postgres refused the values: \(text)")
        case .server: self.init(.dependencyAway, "postgres: \(text)")
        }
    }

    private init(_ error: RedisError) {
        switch error.code {
        case .invalidAddress: self.init(.configuration, "RATCHET_REDIS_URL: \(Self.oneLine(error.message))")
        case .server("MOVED"), .server("ASK"):
            self.init(
                .configuration,
                "RATCHET_REDIS_URL names one node of a cluster: write redis-cluster://host:port,host:port instead")
        case .server("READONLY"):
            self.init(
                .configuration,
                "redis is a read-only replica: RATCHET_REDIS_URL must name the primary, or its sentinels"
                    + " (redis-sentinel://host:port,host:port/name)")
        case .server, .unavailable, .timeout, .closed, .protocolViolation:
            self.init(.dependencyAway, Self.oneLine(error.description))
        }
    }

    /// No such schema, table, column or function.
    private static func tellsOfOldSchema(_ error: PostgresError) -> Bool {
        ["3F000", "42P01", "42703", "42883"].contains(error.sqlstate ?? "")
    }

    /// libpq breaks and indents its messages.
    private static func oneLine(_ text: String) -> String {
        text.split(whereSeparator: \.isWhitespace).joined(separator: " ")
    }
}
