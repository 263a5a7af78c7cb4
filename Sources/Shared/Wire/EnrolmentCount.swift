/// The steps of an enrolment; raw values stand in metrics and in the store.
package enum EnrolmentStep: String, CaseIterable, Sendable {
    /// A challenge was given out.
    case challenged
    /// A well-formed attest call came.
    case attempted
    case enrolled
    /// Challenge or attestation is not valid.
    case refused
    case notConnected = "not_connected"
    case ambiguous
    /// Nobody answered in time, or the queue refused.
    case unavailable
}

/// What is counted about enrolments, day by day: how far they come at which app, and why no further.
package struct EnrolmentCount: Hashable, Sendable {
    /// Days since 1970-01-01 UTC.
    package let day: Int64
    /// Empty where no organization is known yet: a challenge names no app, and a bundle may be nobody's.
    package let organization: String
    /// Empty with the organization: strangers choose the others.
    package let bundleID: String
    package let step: EnrolmentStep
    /// Why a step failed; empty for what has no reason.
    package let reason: String

    package init(day: Int64, organization: String, bundleID: String, step: EnrolmentStep, reason: String) {
        self.day = day
        self.organization = organization
        self.bundleID = bundleID
        self.step = step
        self.reason = reason
    }

    package static func day(ofMilliseconds milliseconds: Int64) -> Int64 { milliseconds / 86_400_000 }

    /// The name that it is counted under on its way; no part holds a bar.
    package var name: String { "\(day)|\(organization)|\(bundleID)|\(step.rawValue)|\(reason)" }

    /// Reads a name; nil for what is none.
    package init?(name: String) {
        let parts = name.split(separator: "|", omittingEmptySubsequences: false)
        guard parts.count == 5, let day = Int64(parts[0]), day >= 0,
            let step = EnrolmentStep(rawValue: String(parts[3])),
            parts[1].utf8.count <= SDKLimits.organizationIDBytes, parts[4].utf8.count <= SDKLimits.refusalReasonBytes,
            parts[2].isEmpty || TextRules.isBundleID(String(parts[2]))
        else { return nil }
        self.init(
            day: day, organization: String(parts[1]), bundleID: String(parts[2]), step: step, reason: String(parts[4]))
    }
}
