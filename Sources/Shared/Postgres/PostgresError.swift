/// Why a call on Postgres failed.
package struct PostgresError: Error, Equatable, Sendable, CustomStringConvertible {
    package enum Code: Equatable, Sendable {
        /// The server can't be reached, or the connection was lost. Whether a running statement took effect is unknown.
        case connection
        /// The server refused the statement; `sqlstate` says why.
        case server
        /// No answer in time. The connection was closed; whether the statement took effect is unknown.
        case deadline
        /// The caller asked for what can't be: two calls at once, a missing column, NULL where none is expected.
        case usage
    }

    /// What to do with the work that failed (queue.md §4).
    package enum Outcome: Equatable, Sendable {
        /// The data itself is at fault: no retry helps.
        case permanent
        /// It collided with other work: again at once.
        case transient
        /// The database is away, overloaded or not as this program needs it: stop asking for a while.
        case dependency
    }

    package let code: Code
    /// Five characters (PostgreSQL manual, appendix A) when the server spoke; nil otherwise.
    package let sqlstate: String?
    /// One line for operators. May quote data of the statement; never for strangers.
    package let message: String
    /// The constraint that was violated, by name.
    package let constraint: String?

    package init(_ code: Code, sqlstate: String? = nil, _ message: String, constraint: String? = nil) {
        self.code = code
        self.sqlstate = sqlstate
        self.message = message
        self.constraint = constraint
    }

    package var outcome: Outcome {
        guard let sqlstate else { return .dependency }
        return Self.outcome(sqlstate: sqlstate)
    }

    /// Whether the same work may succeed later.
    package var isRetryable: Bool { outcome != .permanent }

    package var description: String {
        if let sqlstate { return "\(message) (SQLSTATE \(sqlstate))" }
        return message
    }

    /// The class of a SQLSTATE. Whatever is not known to be the data's fault or a collision is the database's: to stop
    /// and ask again loses nothing, a dead letter for a missing table would.
    package static func outcome(sqlstate: String) -> Outcome {
        switch sqlstate {
        case "40001", "40P01", "23505": .transient
        case "23514": .permanent
        case _ where sqlstate.hasPrefix("22") || sqlstate.hasPrefix("54"): .permanent
        default: .dependency
        }
    }
}
