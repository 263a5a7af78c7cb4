/// The payload of a signed transaction with the claims that Apple sends; change what a test is about. Times are
/// milliseconds since 1970.
package struct TestPKITransaction: Sendable {
    package var transactionID = "2000000000000001"
    package var originalTransactionID = "2000000000000001"
    package var bundleID = "com.example.app"
    package var productID = "com.example.app.pro.annual"
    /// Nil leaves the claim out.
    package var environment: String? = "Production"
    /// 2025-07-01; the test leaf is valid in 2025 and 2026.
    package var purchaseDate: Int64 = 1_751_328_000_000
    package var originalPurchaseDate: Int64 = 1_751_328_000_000
    /// Nil for what never expires.
    package var expiresDate: Int64? = 1_782_864_000_000
    package var signedDate: Int64 = 1_751_328_001_000
    package var type = "Auto-Renewable Subscription"
    package var ownership = "PURCHASED"
    package var revocationDate: Int64?
    package var revocationReason: Int64?
    package var price: Int64? = 59_990
    package var currency = "USD"
    package var appAccountToken: String?
    /// Further members, each a name and its JSON text; put behind the others, also when a name stands twice then.
    package var extra: [(name: String, json: String)] = []

    package init() {}

    package init(
        transactionID: String, originalTransactionID: String? = nil, bundleID: String = "com.example.app",
        productID: String = "com.example.app.pro.annual", environment: String? = "Production"
    ) {
        self.transactionID = transactionID
        self.originalTransactionID = originalTransactionID ?? transactionID
        self.bundleID = bundleID
        self.productID = productID
        self.environment = environment
    }

    /// A copy with some fields changed.
    package func with(_ change: (inout TestPKITransaction) -> Void) -> TestPKITransaction {
        var copy = self
        change(&copy)
        return copy
    }

    /// The claims, each a name and its JSON text, in the order of Apple's.
    package var members: [(name: String, json: String)] {
        var members: [(name: String, json: String)] = [
            ("transactionId", Self.quote(transactionID)),
            ("originalTransactionId", Self.quote(originalTransactionID)),
            ("webOrderLineItemId", "\"2000000120227307\""),
            ("bundleId", Self.quote(bundleID)),
            ("productId", Self.quote(productID)),
            ("subscriptionGroupIdentifier", "\"21822482\""),
            ("purchaseDate", String(purchaseDate)),
            ("originalPurchaseDate", String(originalPurchaseDate)),
        ]
        if let expiresDate { members.append(("expiresDate", String(expiresDate))) }
        members += [
            ("quantity", "1"), ("type", Self.quote(type)), ("inAppOwnershipType", Self.quote(ownership)),
            ("signedDate", String(signedDate)),
        ]
        if let environment { members.append(("environment", Self.quote(environment))) }
        members += [
            ("transactionReason", "\"PURCHASE\""), ("storefront", "\"USA\""), ("storefrontId", "\"143441\""),
        ]
        if let price { members.append(("price", String(price))) }
        members.append(("currency", Self.quote(currency)))
        if let appAccountToken { members.append(("appAccountToken", Self.quote(appAccountToken))) }
        if let revocationDate { members.append(("revocationDate", String(revocationDate))) }
        if let revocationReason { members.append(("revocationReason", String(revocationReason))) }
        return members + extra
    }

    package var json: String { Self.object(members) }

    /// The same with one claim replaced by other JSON text, or left out (nil).
    package func json(replacing name: String, with text: String?) -> String {
        Self.object(
            members.compactMap { member in
                guard member.name == name else { return member }
                return text.map { (name, $0) }
            })
    }

    private static func object(_ members: [(name: String, json: String)]) -> String {
        "{" + members.map { "\"\($0.name)\":\($0.json)" }.joined(separator: ",") + "}"
    }

    /// A JSON string with what must be escaped.
    package static func quote(_ text: String) -> String {
        var quoted = "\""
        for scalar in text.unicodeScalars {
            switch scalar {
            case "\"", "\\": quoted += "\\\(scalar)"
            case _ where scalar.value < 0x20:
                let hex = String(scalar.value, radix: 16)
                quoted += "\\u" + String(repeating: "0", count: 4 - hex.count) + hex
            default: quoted.unicodeScalars.append(scalar)
            }
        }
        return quoted + "\""
    }
}
