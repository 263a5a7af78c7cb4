package import Wire

/// Why an App Attest attestation proves nothing. An everyday outcome, not a fault: it is answered and counted.
package struct AttestationRefusal: Error, Hashable, Sendable {
    package typealias Reason = AttestationReason

    package let reason: Reason
    /// One line for an operator, in fixed words: nothing of the object is quoted.
    package let detail: String

    package init(_ reason: Reason, _ detail: String) {
        self.reason = reason
        self.detail = detail
    }
}
