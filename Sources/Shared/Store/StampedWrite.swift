package import Wire

/// A write of the SDK API as the queue delivers it: validated, resolved to its organization, stamped, and verified as
/// far as it can be.
package struct StampedWrite: Equatable, Sendable {
    package enum Content: Equatable, Sendable {
        case identify(IdentifyWrite)
        /// Evidence that nobody has looked at (`.unverified`) counts as none.
        case attribute(AttributeWrite)
        case adServices(AdServicesWrite)
    }

    package var organization: String
    /// Microseconds, below 2⁵³: the order of writes. Minted by the queue at acceptance, kept for the write's life.
    package var stamp: Int64
    package var content: Content

    package init(organization: String, stamp: Int64, content: Content) {
        self.organization = organization
        self.stamp = stamp
        self.content = content
    }
}

/// What a batch did.
package struct ApplyReport: Equatable, Sendable {
    /// Row versions written, by table; a redelivered batch writes none.
    package var customers = 0
    package var purchases = 0
    package var transactions = 0
    package var ownerWrites = 0
    package var devices = 0
    package var adServicesTokens = 0
    /// AdServices tokens of installs that had one: counted and thrown away.
    package var adServicesLater = 0
    /// Writes whose signed transaction named another originalTransactionId than the body: only the signed one was
    /// linked.
    package var lineageMismatches = 0
    /// How often a customer's attributes were cut to the 256 that are kept.
    package var attributesCut = 0

    package init() {}
}
