internal import Bytes
internal import Wire

/// The key of a lineage, ordered as its table's primary key is.
struct PurchaseKey: Hashable, Comparable {
    let organization: String
    let store: PurchaseStore
    /// SHA-256 of the lineage's id.
    let lineage: [UInt8]

    func hash(into hasher: inout Hasher) {
        hasher.combine(organization)
        hasher.combine(digest: lineage)
    }

    static func < (a: PurchaseKey, b: PurchaseKey) -> Bool {
        // Organization ids are ASCII, for which String's order is that of the bytes.
        if a.organization != b.organization { return a.organization < b.organization }
        if a.store != b.store { return a.store.rawValue < b.store.rawValue }
        return a.lineage.lexicographicallyPrecedes(b.lineage)
    }
}

/// What a batch says of one purchase.
struct PurchaseFold {
    let originalTransactionID: String
    var firstSeen: Int64
    var lastSeen: Int64
    var attested = false
    var jwsVerified = false
    var bundleID = StampedText()
    var productID = StampedText()

    mutating func touch(stamp: Int64, attested: Bool, jws: Bool) {
        firstSeen = min(firstSeen, stamp)
        lastSeen = max(lastSeen, stamp)
        self.attested = self.attested || attested
        jwsVerified = jwsVerified || jws
    }
}

/// The key of an owner write: one for each accepted attribute call.
struct OwnerWriteKey: Hashable {
    let purchase: PurchaseKey
    let stamp: Int64
    let customer: UUIDv8
}

/// The proof of an owner write. Two deliveries of one write are equal; joined all the same, so that no order matters.
struct OwnerWriteFold {
    var attested = false
    var jws = false
    var device: String?
    var addressHash: String?

    mutating func join(_ proof: WriteProof, jws: Bool) {
        attested = attested || proof.attested
        self.jws = self.jws || jws
        device = greater(device, proof.deviceID)
        addressHash = greater(addressHash, proof.addressHash)
    }
}

/// The key of a transaction, by the SHA-256 of the store's transaction id.
struct TransactionKey: Hashable, Comparable {
    let organization: String
    let store: PurchaseStore
    let digest: [UInt8]

    func hash(into hasher: inout Hasher) {
        hasher.combine(organization)
        hasher.combine(digest: digest)
    }

    static func < (a: TransactionKey, b: TransactionKey) -> Bool {
        if a.organization != b.organization { return a.organization < b.organization }
        if a.store != b.store { return a.store.rawValue < b.store.rawValue }
        return a.digest.lexicographicallyPrecedes(b.digest)
    }
}
