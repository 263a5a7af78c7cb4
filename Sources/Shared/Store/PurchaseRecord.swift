/// One purchase (a lineage) as operators see it.
package struct PurchaseRecord: Equatable, Sendable {
    package let organization: String
    /// `app_store` or `play_store`.
    package let store: String
    package let originalTransactionID: String
    /// The appUserId the purchase is attributed to now.
    package let owner: String
    /// The signed one of the current transaction if there is any, else the one sent last.
    package let productID: String?
    /// As `productID`.
    package let bundleID: String?
    /// `Production` or `Sandbox`; nil without a signed transaction, as are all facts below.
    package let environment: String?
    /// `PURCHASED` or `FAMILY_SHARED`.
    package let ownership: String?
    /// Milliseconds since 1970, of the current transaction: the one with the greatest (purchase date, expiry) among
    /// those not revoked, or among all when every one is.
    package let purchasedAt: Int64?
    /// Milliseconds; nil also for what never expires.
    package let expiresAt: Int64?
    /// Milliseconds.
    package let revokedAt: Int64?
    package let isUpgraded: Bool?
    package let appAccountToken: String?
    /// Some write of this purchase carried a live device token.
    package let attested: Bool
    /// Apple's signature was verified for this purchase.
    package let jwsVerified: Bool
    /// No write of the present owner carried proof, while one of another customer did.
    package let contested: Bool
    /// Three or more changes of owner in the last 24 hours.
    package let flapping: Bool
    /// Microseconds since 1970: stamps of the first and the last write.
    package let firstSeenAt: Int64
    package let lastSeenAt: Int64

    package var verified: Bool { attested || jwsVerified }
    package var revoked: Bool { revokedAt != nil }
}

/// One change of a purchase's owner.
package struct PurchaseMove: Equatable, Sendable {
    /// The appUserId before; nil for the first link.
    package let from: String?
    package let to: String
    /// The stamp of the write that moved it, microseconds since 1970.
    package let at: Int64
    /// What proof the mover's write carried.
    package let attested: Bool
    package let jws: Bool
    /// Moved by hand.
    package let `operator`: Bool
    /// The mover's write carried no proof, while an earlier write of another customer did.
    package let contested: Bool

    package init(
        from: String?, to: String, at: Int64, attested: Bool, jws: Bool, operator: Bool, contested: Bool
    ) {
        self.from = from
        self.to = to
        self.at = at
        self.attested = attested
        self.jws = jws
        self.operator = `operator`
        self.contested = contested
    }
}
