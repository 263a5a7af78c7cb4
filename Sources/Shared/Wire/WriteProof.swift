/// What is known of who sent a write. It travels with the write's job and is stored with it.
package struct WriteProof: Equatable, Sendable {
    /// True when the call carried a live device token of the same app.
    package var attested: Bool
    /// Why the call carried none, as the SDK says in `X-RevenueHog-Unattested`: pending, unsupported, simulator,
    /// enroll-failed or other. Nil when attested, or when the header was absent.
    package var unattestedReason: String?
    /// The device whose token was used; nil when unattested.
    package var deviceID: String?
    /// The first 16 hex characters of the SHA-256 of the sender's address (an IPv6 one by its /64); nil when unknown.
    package var addressHash: String?

    package init(
        attested: Bool = false, unattestedReason: String? = nil, deviceID: String? = nil, addressHash: String? = nil
    ) {
        self.attested = attested
        self.unattestedReason = unattestedReason
        self.deviceID = deviceID
        self.addressHash = addressHash
    }
}
