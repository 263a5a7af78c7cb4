/// A validated `POST /api/sdk/v1/attribute`: what the queue carries, the verifier completes and the writer folds.
package struct AttributeWrite: Equatable, Sendable {
    package var appUserID: String
    package var bundleID: String
    package var store: PurchaseStore
    /// The lineage as the body named it: Apple's originalTransactionId or the Play purchase token.
    package var originalTransactionID: String
    package var productID: String?
    /// What stands behind the link. `.unverified` jobs go to the verifier first.
    package var evidence: Evidence
    package var proof: WriteProof

    package enum Evidence: Equatable, Sendable {
        /// The call carried no usable `jws`.
        case none
        /// A signed transaction that nobody has looked at yet.
        case unverified(jws: String)
        /// Apple's signature checked out; these facts rule over the raw fields.
        case verified(TransactionFacts)
        /// The signature or its claims were refused: proof of nothing, and no error. The reason is a fixed word such
        /// as `bad_signature` or `bundle_mismatch`.
        case refused(reason: String)
    }

    package init(
        appUserID: String, bundleID: String, store: PurchaseStore, originalTransactionID: String,
        productID: String? = nil,
        evidence: Evidence = .none, proof: WriteProof = .init()
    ) {
        self.appUserID = appUserID
        self.bundleID = bundleID
        self.store = store
        self.originalTransactionID = originalTransactionID
        self.productID = productID
        self.evidence = evidence
        self.proof = proof
    }
}
