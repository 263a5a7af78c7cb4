package import Wire

/// What one loop has counted since the start, for metrics. Every key comes from a closed list.
package struct IngressCounters: Sendable {
    /// Answers by route and status.
    package struct Answer: Hashable, Sendable {
        package let route: SDKRoute
        package let status: Int
    }

    package var answers: [Answer: Int64] = [:]
    /// Microseconds spent answering, by route, for the mean; waiting for Redis included.
    package var microseconds: [SDKRoute: Int64] = [:]
    /// Refused bodies by error code.
    package var refused: [String: Int64] = [:]
    /// Optional fields that were ignored, by name.
    package var ignoredFields: [String: Int64] = [:]
    /// Accepted values that look like a mistake of the app, by kind.
    package var oddities: [String: Int64] = [:]
    /// Unattested writes by the reason that the SDK gave.
    package var unattested: [String: Int64] = [:]
    /// Steps of enrolments.
    package var enrolments: [EnrolmentStep: Int64] = [:]
    /// Enrolments that failed for what the device sent, by reason.
    package var enrolmentRefusals: [String: Int64] = [:]
    package var limited: Int64 = 0
    package var addressLimited: Int64 = 0
    /// Writes answered 503 for want of an app directory.
    package var noDirectory: Int64 = 0
    /// Why the queue last refused.
    package var lastUnavailable: String?

    package init() {}

    mutating func count(_ route: SDKRoute, status: Int, nanoseconds: Int64) {
        answers[Answer(route: route, status: status), default: 0] += 1
        microseconds[route, default: 0] += nanoseconds / 1000
    }

    mutating func count(refusal code: WireError.Code) { refused[code.rawValue, default: 0] += 1 }

    mutating func count(enrolment step: EnrolmentStep, _ reason: String?) {
        enrolments[step, default: 0] += 1
        if let reason { enrolmentRefusals[reason, default: 0] += 1 }
    }

    mutating func note(ignored: [OptionalField], oddities odd: [Oddity]) {
        for field in ignored { ignoredFields[field.rawValue, default: 0] += 1 }
        for oddity in odd { oddities[oddity.rawValue, default: 0] += 1 }
    }

    /// The sum of several loops' counts.
    package static func + (a: IngressCounters, b: IngressCounters) -> IngressCounters {
        var sum = a
        sum.answers.merge(b.answers, uniquingKeysWith: +)
        sum.microseconds.merge(b.microseconds, uniquingKeysWith: +)
        sum.refused.merge(b.refused, uniquingKeysWith: +)
        sum.ignoredFields.merge(b.ignoredFields, uniquingKeysWith: +)
        sum.oddities.merge(b.oddities, uniquingKeysWith: +)
        sum.unattested.merge(b.unattested, uniquingKeysWith: +)
        sum.enrolments.merge(b.enrolments, uniquingKeysWith: +)
        sum.enrolmentRefusals.merge(b.enrolmentRefusals, uniquingKeysWith: +)
        sum.limited += b.limited
        sum.addressLimited += b.addressLimited
        sum.noDirectory += b.noDirectory
        sum.lastUnavailable = b.lastUnavailable ?? a.lastUnavailable
        return sum
    }
}
