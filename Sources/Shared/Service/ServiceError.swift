/// Why a process can't start or go on.
package struct ServiceError: Error, Sendable, CustomStringConvertible {
    /// What kind of trouble it is; each kind has its exit code.
    package enum Code: Sendable, Equatable {
        /// A setting, a file or an address that an operator must mend; trying again changes nothing.
        case configuration
        /// Redis, Postgres or another server can't be reached; trying again later can help.
        case dependencyAway
        /// A fault of the program itself.
        case internalFault
    }

    package let code: Code
    /// For an operator: one line a problem, no secret in it.
    package let message: String

    package init(_ code: Code, _ message: String) {
        self.code = code
        self.message = message
    }

    /// Whether the same start can work later without anybody changing anything.
    package var retryCanHelp: Bool { code == .dependencyAway }
    package var description: String { message }

    /// The exit code that a process ends with because of this error.
    package var exitCode: Int32 {
        switch code {
        case .configuration: ExitCode.usage
        case .dependencyAway: ExitCode.dependencyAway
        case .internalFault: ExitCode.internalFault
        }
    }
}

/// What the processes and the command line end with.
package enum ExitCode {
    package static let success: Int32 = 0
    /// The command worked and its answer is no.
    package static let negative: Int32 = 1
    /// Wrong arguments or settings.
    package static let usage: Int32 = 2
    package static let dependencyAway: Int32 = 3
    package static let notFound: Int32 = 4
    /// A fault of the program, or work that didn't end within the grace (sysexits.h EX_SOFTWARE).
    package static let internalFault: Int32 = 70
    /// Added to a signal's number when that signal ended the process at once, as shells do.
    package static let signalBase: Int32 = 128
}
