internal import JSON

/// Facts travel under Apple's own names (JWSTransactionDecodedPayload), so that an operator can look them up, and
/// `payloadDigest`.
extension TransactionFacts {
    func encode(to writer: inout JSONWriter) {
        writer.beginObject()
        writer.member("transactionId", transactionID)
        writer.member("originalTransactionId", originalTransactionID)
        writer.member("bundleId", bundleID)
        writer.member("productId", productID)
        writer.member("environment", environment)
        writer.member("purchaseDate", purchaseDate)
        writer.member("originalPurchaseDate", originalPurchaseDate)
        writer.member("expiresDate", expiresDate)
        writer.member("signedDate", signedDate)
        writer.member("type", type)
        writer.member("inAppOwnershipType", ownership)
        writer.member("revocationDate", revocationDate)
        writer.member("revocationReason", revocationReason)
        writer.member("isUpgraded", isUpgraded)
        writer.member("price", price)
        writer.member("currency", currency)
        writer.member("storefront", storefront)
        writer.member("appAccountToken", appAccountToken)
        writer.member("quantity", quantity)
        writer.member("payloadDigest", payloadDigest)
        writer.endObject()
    }

    init(payload value: JSONValue) throws(WireError) {
        let reader = try PayloadReader(
            value, path: "verified.",
            members: [
                "transactionId", "originalTransactionId", "bundleId", "productId", "environment", "purchaseDate",
                "originalPurchaseDate", "expiresDate", "signedDate", "type", "inAppOwnershipType", "revocationDate",
                "revocationReason", "isUpgraded", "price", "currency", "storefront", "appAccountToken", "quantity",
                "payloadDigest",
            ])
        let times = 0...SDKLimits.latestTimeMilliseconds
        self.init(
            transactionID: try reader.string("transactionId", TextRules.isOriginalTransactionID),
            originalTransactionID: try reader.string("originalTransactionId", TextRules.isOriginalTransactionID),
            bundleID: try reader.string("bundleId", TextRules.isBundleID),
            productID: try reader.string("productId", Self.isSignedText),
            environment: try reader.string("environment", Self.isSignedText),
            purchaseDate: try reader.integer("purchaseDate", in: times),
            originalPurchaseDate: try reader.optionalInteger("originalPurchaseDate", in: times),
            expiresDate: try reader.optionalInteger("expiresDate", in: times),
            signedDate: try reader.integer("signedDate", in: times),
            type: try reader.optionalString("type", Self.isSignedText),
            ownership: try reader.optionalString("inAppOwnershipType", Self.isSignedText),
            revocationDate: try reader.optionalInteger("revocationDate", in: times),
            revocationReason: try reader.optionalInteger("revocationReason"),
            isUpgraded: try reader.optionalBool("isUpgraded"),
            price: try reader.optionalInteger("price"),
            currency: try reader.optionalString("currency", Self.isSignedText),
            storefront: try reader.optionalString("storefront", Self.isSignedText),
            appAccountToken: try reader.optionalString("appAccountToken", Self.isSignedText),
            quantity: try reader.optionalInteger("quantity"),
            payloadDigest: try reader.string("payloadDigest") { TextRules.isLowerHex($0, count: 64) })
    }

    /// Apple's texts are bounded only by the token that carried them.
    private static func isSignedText(_ text: String) -> Bool { text.utf8.count <= SDKLimits.jwsBytes }
}
