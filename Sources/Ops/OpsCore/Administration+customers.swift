internal import Postgres
package import Store
package import Wire

extension Administration {
    /// One customer by the id the app uses.
    /// - Throws: `.notFound` for an unknown organization or customer.
    package func customer(appUserID: String, organization: String) async throws(OpsError) -> CustomerRecord {
        try Self.checkUserID(appUserID)
        return try await inOrganization(organization) { connection in
            let customer = try await Customers.show(
                organization: organization, appUserID: appUserID, nowMicroseconds: nowMicroseconds, connection)
            guard let customer else {
                throw OpsError(.notFound, "\(organization) has no customer \(Self.quoted(appUserID))")
            }
            return customer
        }
    }

    /// A purchase with every change of its owner, the oldest first.
    package struct PurchaseHistory: Equatable, Sendable {
        package let purchase: PurchaseRecord
        package let history: [PurchaseMove]
    }

    /// One purchase.
    /// - Parameter store: nil looks in both, the App Store first.
    /// - Throws: `.notFound` for an unknown organization or purchase.
    package func purchase(
        originalTransactionID: String, organization: String, store: PurchaseStore?
    ) async throws(OpsError) -> PurchaseHistory {
        try Self.checkOriginalTransactionID(originalTransactionID)
        return try await inOrganization(organization) { connection in
            let purchase = try await Purchases.show(
                organization: organization, originalTransactionID: originalTransactionID, store: store,
                nowMicroseconds: nowMicroseconds, connection)
            guard let purchase else { throw Self.noPurchase(originalTransactionID, organization, store) }
            return PurchaseHistory(
                purchase: purchase, history: try await Purchases.history(of: purchase, connection))
        }
    }

    /// What a customer owns now, the oldest first.
    /// - Throws: `.notFound` for an unknown organization or customer.
    package func purchases(ofUser appUserID: String, organization: String) async throws(OpsError) -> [PurchaseRecord] {
        try await customer(appUserID: appUserID, organization: organization).purchases
    }

    package struct Move: Equatable, Sendable {
        /// The owner before.
        package let from: String
        /// Microseconds: the stamp of the owner write that was added.
        package let at: Int64
        /// The purchase as it is now.
        package let result: PurchaseHistory
    }

    /// Sets a purchase's owner by hand. A later write of the SDK moves it on, as always; naming the present owner
    /// confirms it.
    /// - Parameter reason: for the audit log; at most 1,000 bytes.
    /// - Throws: `.notFound` for an unknown organization, purchase or customer.
    package func movePurchase(
        originalTransactionID: String, organization: String, store: PurchaseStore?, to appUserID: String,
        reason: String?
    ) async throws(OpsError) -> Move {
        try Self.checkOriginalTransactionID(originalTransactionID)
        try Self.checkUserID(appUserID)
        if let reason, reason.utf8.count > 1_000 || reason.utf8.contains(0) {
            throw OpsError(.usage, "the reason must have at most 1000 bytes")
        }
        return try await inOrganization(organization) { connection in
            let outcome = try await Purchases.move(
                organization: organization, originalTransactionID: originalTransactionID, store: store, to: appUserID,
                actor: actor, reason: reason, nowMicroseconds: nowMicroseconds, connection)
            guard case .moved(let from, let stamp) = outcome else {
                if outcome == .customerNotFound {
                    throw OpsError(
                        .notFound,
                        "\(organization) has no customer \(Self.quoted(appUserID)): a purchase moves between known ones"
                    )
                }
                throw Self.noPurchase(originalTransactionID, organization, store)
            }
            let purchase = try await Purchases.show(
                organization: organization, originalTransactionID: originalTransactionID, store: store,
                nowMicroseconds: nowMicroseconds, connection)
            guard let purchase else { throw Self.noPurchase(originalTransactionID, organization, store) }
            let history = try await Purchases.history(of: purchase, connection)
            return Move(from: from, at: stamp, result: PurchaseHistory(purchase: purchase, history: history))
        }
    }

    private static func noPurchase(_ id: String, _ organization: String, _ store: PurchaseStore?) -> OpsError {
        let place = store.map { " in \($0.rawValue)" } ?? ""
        return OpsError(.notFound, "\(organization) has no purchase \(quoted(id))\(place)")
    }
}
