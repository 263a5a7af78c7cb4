/// How much callers may ask for. What is exact across processes is kept by the queue, what is by address by each
/// process for itself.
package struct CallLimits: Sendable {
    /// Writes of one device without a token; 0 for no limit.
    package var unattestedPerMinute: Int
    /// Writes of one organization with tokens, unless it has a number of its own; 0 for no limit.
    package var attestedPerMinute: Int
    /// Challenges of one address.
    package var challenges: AddressGuard
    /// Enrolments of one address.
    package var enrolments: AddressGuard
    /// Tokens of one address that neither memory nor Redis knows, each of which costs a look into the database.
    package var strangers: AddressGuard

    /// Phones behind one address with tokens that a wiped Redis forgot; more come through a minute later.
    package static let strangersPerMinute = 300

    package init(
        unattestedPerMinute: Int, attestedPerMinute: Int, challenges: AddressGuard, enrolments: AddressGuard,
        strangers: AddressGuard = AddressGuard(perMinute: CallLimits.strangersPerMinute)
    ) {
        self.unattestedPerMinute = unattestedPerMinute
        self.attestedPerMinute = attestedPerMinute
        self.challenges = challenges
        self.enrolments = enrolments
        self.strangers = strangers
    }
}
