package import Wire

/// What a signed transaction must be made for.
package struct TransactionExpectation: Sendable {
    /// The two environments of Apple's servers. Xcode's own (`Xcode`, `LocalTesting`) are signed by nobody.
    package static let appStoreEnvironments: Set<String> = ["Production", "Sandbox"]

    /// Compared byte for byte; nil leaves it unchecked.
    package var bundleID: String?
    /// The environments that are accepted; a token that names none is refused. Nil leaves it unchecked, and then
    /// `TransactionFacts.environment` is empty when the token names none.
    package var environments: Set<String>?

    package init(bundleID: String?, environments: Set<String>? = TransactionExpectation.appStoreEnvironments) {
        self.bundleID = bundleID
        self.environments = environments
    }
}

/// What became of a signed transaction. Verified says that Apple made it for this app, not that the sender owns it, nor
/// that it is still worth anything: a refunded one verifies and has a `revocationDate`.
package enum TransactionVerdict: Equatable, Sendable {
    case verified(TransactionFacts)
    case refused(Refusal)
}
