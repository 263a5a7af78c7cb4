package import Postgres

/// Why the schema could not be brought to, or compared with, what this program needs.
package struct StoreError: Error, Equatable, Sendable, CustomStringConvertible {
    package enum Code: Equatable, Sendable {
        /// Postgres failed; `cause` says how.
        case database
        /// A migration that was applied is not the one this program holds: the history was edited.
        case migrationChanged
        /// A later migration was applied and an earlier one was not.
        case migrationSkipped
        /// The connection names no schema.
        case noSchema
    }

    package let code: Code
    package let message: String
    package let cause: PostgresError?

    package init(_ code: Code, _ message: String, cause: PostgresError? = nil) {
        self.code = code
        self.message = message
        self.cause = cause
    }

    package init(_ cause: PostgresError) { self.init(.database, cause.description, cause: cause) }

    /// Whether the same call may succeed later without anybody's help.
    package var isRetryable: Bool { cause?.isRetryable ?? false }

    package var description: String { message }
}
