/// What Apple's signature on a StoreKit 2 transaction vouches for. Times are milliseconds since 1970.
/// Source: Apple, JWSTransactionDecodedPayload. Unknown enum values are kept as sent.
package struct TransactionFacts: Equatable, Sendable {
    package var transactionID: String
    package var originalTransactionID: String
    package var bundleID: String
    package var productID: String
    /// `Production` or `Sandbox`, as signed.
    package var environment: String
    package var purchaseDate: Int64
    package var originalPurchaseDate: Int64?
    /// Nil for what never expires.
    package var expiresDate: Int64?
    /// When Apple signed this; orders two receipts of one transaction.
    package var signedDate: Int64
    /// `Auto-Renewable Subscription`, `Non-Consumable`, `Consumable` or `Non-Renewing Subscription`.
    package var type: String?
    /// `PURCHASED` or `FAMILY_SHARED`.
    package var ownership: String?
    package var revocationDate: Int64?
    package var revocationReason: Int64?
    package var isUpgraded: Bool?
    /// Thousandths of the currency's unit.
    package var price: Int64?
    package var currency: String?
    package var storefront: String?
    package var appAccountToken: String?
    package var quantity: Int64?
    /// Lower-case hex SHA-256 of the signed payload's bytes; breaks ties between receipts of the same instant.
    package var payloadDigest: String

    package init(
        transactionID: String, originalTransactionID: String, bundleID: String, productID: String,
        environment: String, purchaseDate: Int64, originalPurchaseDate: Int64? = nil, expiresDate: Int64? = nil,
        signedDate: Int64, type: String? = nil, ownership: String? = nil, revocationDate: Int64? = nil,
        revocationReason: Int64? = nil, isUpgraded: Bool? = nil, price: Int64? = nil, currency: String? = nil,
        storefront: String? = nil, appAccountToken: String? = nil, quantity: Int64? = nil, payloadDigest: String
    ) {
        self.transactionID = transactionID
        self.originalTransactionID = originalTransactionID
        self.bundleID = bundleID
        self.productID = productID
        self.environment = environment
        self.purchaseDate = purchaseDate
        self.originalPurchaseDate = originalPurchaseDate
        self.expiresDate = expiresDate
        self.signedDate = signedDate
        self.type = type
        self.ownership = ownership
        self.revocationDate = revocationDate
        self.revocationReason = revocationReason
        self.isUpgraded = isUpgraded
        self.price = price
        self.currency = currency
        self.storefront = storefront
        self.appAccountToken = appAccountToken
        self.quantity = quantity
        self.payloadDigest = payloadDigest
    }
}
