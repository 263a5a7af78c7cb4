internal import Service

/// What `doctor` found.
package struct Diagnosis: Equatable, Sendable {
    package enum Status: String, Sendable {
        case ok
        /// It works, but an operator should look at it.
        case warn
        case fail
    }

    package struct Check: Equatable, Sendable {
        package let name: String
        package let status: Status
        package let message: String
        /// How to mend it; nil where there is nothing to mend.
        package let remedy: String?
        /// Redis or Postgres can't be reached.
        package let isDependencyAway: Bool

        init(
            _ name: String, _ status: Status, _ message: String, remedy: String? = nil, isDependencyAway: Bool = false
        ) {
            self.name = name
            self.status = status
            self.message = message
            self.remedy = remedy
            self.isDependencyAway = isDependencyAway
        }
    }

    package var checks: [Check]

    /// The worst of all.
    package var status: Status {
        if checks.contains(where: { $0.status == .fail }) { return .fail }
        return checks.contains { $0.status == .warn } ? .warn : .ok
    }

    /// 3 when a dependency is away, whatever else is wrong; 1 when a check failed; else 0.
    package var exitCode: Int32 {
        if checks.contains(where: \.isDependencyAway) { return ExitCode.dependencyAway }
        return status == .fail ? ExitCode.negative : ExitCode.success
    }
}

extension Document {
    package init(_ diagnosis: Diagnosis) {
        self = .members([
            "status": .string(diagnosis.status.rawValue),
            "checks": .list(
                diagnosis.checks.map { check in
                    .members([
                        "name": .string(check.name), "status": .string(check.status.rawValue),
                        "message": .string(check.message), "remedy": .text(check.remedy),
                    ])
                }),
        ])
    }
}
