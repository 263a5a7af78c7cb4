internal import Bytes
internal import Wire

/// A batch folded: each key once, everything joined. Plain values; nothing waits.
package struct WriteFold {
    /// Each customer once, in no order.
    private(set) var customers: [CustomerFold] = []
    private var places: [UUIDv8: Int] = [:]
    private(set) var purchases: [PurchaseKey: PurchaseFold] = [:]
    private(set) var ownerWrites: [OwnerWriteKey: OwnerWriteFold] = [:]
    private(set) var transactions: [TransactionKey: TransactionFacts] = [:]
    private(set) var adServicesTokens: [NewAdServicesToken] = []
    /// The latest hour in which each device wrote, microseconds since 1970.
    private(set) var devices: [DeviceName: Int64] = [:]
    private(set) var lineageMismatches = 0

    package var customerCount: Int { customers.count }

    struct DeviceName: Hashable {
        let organization: String
        let id: String
    }

    /// A device's last write is kept to the hour: its row changes once an hour, not with each call, and still ends the
    /// same whatever the order.
    private static let hourMicroseconds: Int64 = 3_600_000_000

    /// - Parameter writes: in any order, with any repetition.
    package init(_ writes: [StampedWrite]) {
        customers.reserveCapacity(writes.count)
        places.reserveCapacity(writes.count)
        for write in writes {
            switch write.content {
            case .identify(let identify):
                let place = touch(write, appUserID: identify.appUserID, proof: identify.proof)
                customers[place].merge(identify, stamp: write.stamp)
            case .attribute(let attribute): fold(attribute, of: write)
            case .adServices(let token):
                touchDevice(write, token.proof)
                adServicesTokens.append(
                    NewAdServicesToken(token, organization: write.organization, stamp: write.stamp))
            }
        }
    }

    private mutating func touchDevice(_ write: StampedWrite, _ proof: WriteProof) {
        guard let device = proof.deviceID else { return }
        let name = DeviceName(organization: write.organization, id: device)
        let hour = write.stamp - write.stamp % Self.hourMicroseconds
        devices[name] = max(devices[name] ?? 0, hour)
    }

    /// - Returns: where the customer stands.
    private mutating func touch(_ write: StampedWrite, appUserID: String, proof: WriteProof) -> Int {
        touchDevice(write, proof)
        let id = UUIDv8.customer(organization: write.organization, appUserID: appUserID)
        let place = places[id] ?? customers.count
        if place == customers.count {
            places[id] = place
            customers.append(
                CustomerFold(id: id, organization: write.organization, appUserID: appUserID, stamp: write.stamp))
        }
        customers[place].touch(stamp: write.stamp, proof: proof)
        return place
    }

    private mutating func fold(_ attribute: AttributeWrite, of write: StampedWrite) {
        let customer = customers[touch(write, appUserID: attribute.appUserID, proof: attribute.proof)].id
        var facts: TransactionFacts?
        if case .verified(let verified) = attribute.evidence { facts = verified }
        // What the signature names is the purchase; a body that names another one proves nothing about that other.
        let lineageID = facts?.originalTransactionID ?? attribute.originalTransactionID
        let bodyAgrees = lineageID.utf8.elementsEqual(attribute.originalTransactionID.utf8)
        if !bodyAgrees { lineageMismatches += 1 }
        // Only Apple signs the transactions that are verified here.
        let store: PurchaseStore = facts == nil ? attribute.store : .appStore
        let key = PurchaseKey(
            organization: write.organization, store: store, lineage: SHA256Digest(of: Array(lineageID.utf8)).bytes)
        var purchase =
            purchases[key]
            ?? PurchaseFold(originalTransactionID: lineageID, firstSeen: write.stamp, lastSeen: write.stamp)
        purchase.touch(stamp: write.stamp, attested: attribute.proof.attested, jws: facts != nil)
        if bodyAgrees {
            purchase.bundleID.join(attribute.bundleID, at: write.stamp)
            if let product = attribute.productID { purchase.productID.join(product, at: write.stamp) }
        }
        purchases[key] = purchase
        ownerWrites[
            OwnerWriteKey(purchase: key, stamp: write.stamp, customer: customer), default: OwnerWriteFold()
        ].join(attribute.proof, jws: facts != nil)
        if let facts { fold(facts, organization: write.organization, store: store) }
    }

    private mutating func fold(_ facts: TransactionFacts, organization: String, store: PurchaseStore) {
        let key = TransactionKey(
            organization: organization, store: store,
            digest: SHA256Digest(of: Array(facts.transactionID.utf8)).bytes)
        if let known = transactions[key] {
            let later =
                known.signedDate != facts.signedDate
                ? known.signedDate < facts.signedDate
                : known.payloadDigest.utf8.lexicographicallyPrecedes(facts.payloadDigest.utf8)
            guard later else { return }
        }
        transactions[key] = facts
    }
}
