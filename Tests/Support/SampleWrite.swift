package import Store
package import Wire

/// Writes of an app `com.example.app`, as a writer gets them.
package enum SampleWrite {
    /// - Parameter reason: why it is not attested.
    package static func identify(
        _ user: String, at stamp: Int64, organization: String, platform: String? = nil, osVersion: String? = nil,
        deviceModel: String? = nil, locale: String? = nil, attributes: [(String, String?)] = [],
        attested: Bool = false, reason: String? = nil
    ) -> StampedWrite {
        StampedWrite(
            organization: organization, stamp: stamp,
            content: .identify(
                IdentifyWrite(
                    appUserID: user, bundleID: "com.example.app", platform: platform, osVersion: osVersion,
                    deviceModel: deviceModel, locale: locale,
                    attributes: attributes.map { .init(key: $0.0, value: $0.1) },
                    proof: WriteProof(attested: attested, unattestedReason: reason))))
    }

    /// - Parameter facts: what its token proves; nil for a write without evidence.
    package static func attribute(
        _ user: String, _ purchase: String, at stamp: Int64, organization: String, store: PurchaseStore = .appStore,
        product: String? = nil, facts: TransactionFacts? = nil, attested: Bool = false
    ) -> StampedWrite {
        StampedWrite(
            organization: organization, stamp: stamp,
            content: .attribute(
                AttributeWrite(
                    appUserID: user, bundleID: "com.example.app", store: store, originalTransactionID: purchase,
                    productID: product, evidence: facts.map { .verified($0) } ?? .none,
                    proof: WriteProof(attested: attested))))
    }

    /// - Parameter token: whatever is found in the table instead of a sealed text.
    package static func adServices(
        _ install: String, at stamp: Int64, organization: String, bundle: String = "com.example.app",
        token: String = "token", proof: WriteProof = WriteProof()
    ) -> StampedWrite {
        StampedWrite(
            organization: organization, stamp: stamp,
            content: .adServices(
                AdServicesWrite(
                    bundleID: bundle, installID: install, sealedToken: Array(token.utf8), appVersion: "2.4.0",
                    storefront: "USA", proof: proof)))
    }

    package static func facts(
        _ transaction: String, of purchase: String, signed: Int64 = 1_000, product: String = "com.example.pro",
        purchased: Int64 = 500, expires: Int64? = nil, revoked: Int64? = nil, ownership: String? = "PURCHASED",
        digest: String = "00"
    ) -> TransactionFacts {
        TransactionFacts(
            transactionID: transaction, originalTransactionID: purchase, bundleID: "com.example.app",
            productID: product, environment: "Production", purchaseDate: purchased, expiresDate: expires,
            signedDate: signed, ownership: ownership, revocationDate: revoked, payloadDigest: digest)
    }
}
