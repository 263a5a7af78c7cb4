internal import JSON
package import Wire

/// Reads the claims of a payload whose signature has been verified. Source of names and types: Apple,
/// JWSTransactionDecodedPayload. Claims and enum values that nobody here knows are accepted: Apple adds some each year.
package struct TransactionClaims {
    /// 1970 to the end of year 9999, in milliseconds; wide enough for every date that Apple has signed.
    static let saneMilliseconds: ClosedRange<Int64> = 0...253_402_300_799_999
    /// Deeper than any claim of Apple's by far.
    static let maximumDepth = 32

    private let payload: JSONValue

    /// Throws `malformed_json` unless the bytes are one JSON object in valid UTF-8, with no member named twice, no
    /// U+0000 and bounded depth.
    package init(_ bytes: [UInt8]) throws(Refusal) {
        payload = try Self.object(bytes, "the payload is not one strict JSON object")
    }

    static func object(_ bytes: [UInt8], _ fault: String) throws(Refusal) -> JSONValue {
        let document: JSONDocument
        do {
            document = try JSONDocument(parsing: bytes, maxDepth: maximumDepth, refusingDuplicateMembers: true)
        } catch {
            throw Refusal(.malformedJSON, fault)
        }
        guard document.root.kind == .object else { throw Refusal(.malformedJSON, fault) }
        return document.root
    }

    /// When Apple signed it; every payload of theirs but AppTransaction has it.
    package func signedDate() throws(Refusal) -> Int64 {
        guard let date = try date("signedDate") else {
            throw Refusal(.badClaim, "signedDate is missing")
        }
        return date
    }

    /// Throws `not_a_transaction` when a claim is missing that only a transaction has, `bad_claim` for a wrong type.
    package func facts(signedDate: Int64, digest: String) throws(Refusal) -> TransactionFacts {
        let transactionID = try identifier("transactionId")
        let originalTransactionID = try identifier("originalTransactionId")
        let bundleID = try identifier("bundleId")
        let productID = try identifier("productId")
        guard let purchaseDate = try date("purchaseDate") else {
            throw Self.notATransaction
        }
        return TransactionFacts(
            transactionID: transactionID, originalTransactionID: originalTransactionID, bundleID: bundleID,
            productID: productID, environment: try text("environment") ?? "",
            purchaseDate: purchaseDate,
            originalPurchaseDate: try date("originalPurchaseDate"),
            expiresDate: try date("expiresDate"),
            signedDate: signedDate,
            type: try text("type"),
            ownership: try text("inAppOwnershipType"),
            revocationDate: try date("revocationDate"),
            revocationReason: try integer("revocationReason"),
            isUpgraded: try flag("isUpgraded"),
            price: try integer("price"),
            currency: try text("currency"),
            storefront: try text("storefront"),
            appAccountToken: try text("appAccountToken"),
            quantity: try integer("quantity"),
            payloadDigest: digest)
    }

    /// Whether it was made for the app and an environment that count here. Compared as bytes: Swift's `==` holds texts
    /// for equal that only look the same.
    package func checkAudience(_ expectation: TransactionExpectation) throws(Refusal) {
        if let bundleID = expectation.bundleID {
            guard try identifier("bundleId").utf8.elementsEqual(bundleID.utf8) else {
                throw Refusal(.bundleMismatch, "it belongs to another app")
            }
        }
        if let environments = expectation.environments {
            guard let environment = try text("environment") else {
                throw Refusal(.wrongEnvironment, "it names no environment")
            }
            guard environments.contains(where: { $0.utf8.elementsEqual(environment.utf8) }) else {
                throw Refusal(.wrongEnvironment, "its environment is not accepted here")
            }
        }
    }

    private static let notATransaction = Refusal(.notATransaction, "it lacks a claim that every transaction has")

    /// JSON null counts as absent.
    private func value(_ name: StaticString) -> JSONValue? {
        guard let value = payload[name], !value.isNull else { return nil }
        return value
    }

    /// A number would lose digits on its way; a text is the only form an identifier has.
    private func identifier(_ name: StaticString) throws(Refusal) -> String {
        guard let text = value(name)?.string, !text.isEmpty else { throw Self.notATransaction }
        return text
    }

    private func text(_ name: StaticString) throws(Refusal) -> String? {
        guard let value = value(name) else { return nil }
        guard let text = value.string else { throw Refusal(.badClaim, "\(name) is no text") }
        return text
    }

    private func integer(_ name: StaticString) throws(Refusal) -> Int64? {
        guard let value = value(name) else { return nil }
        guard let integer = value.int64 else { throw Refusal(.badClaim, "\(name) is no 64-bit integer") }
        return integer
    }

    private func date(_ name: StaticString) throws(Refusal) -> Int64? {
        guard let date = try integer(name) else { return nil }
        guard Self.saneMilliseconds.contains(date) else { throw Refusal(.badClaim, "\(name) is out of range") }
        return date
    }

    private func flag(_ name: StaticString) throws(Refusal) -> Bool? {
        guard let value = value(name) else { return nil }
        guard let flag = value.bool else { throw Refusal(.badClaim, "\(name) is no boolean") }
        return flag
    }
}
