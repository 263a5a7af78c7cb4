internal import Bytes

/// Signatures that were good, with the SHA-256 of what they sign: a phone sends the token of a purchase again at each
/// start, and a queue may bring a job twice. Two texts with one digest can't be made, so a hit says what checking the
/// signature again would say; everything else about a token is judged each time.
///
/// Two generations: what is asked for again moves into the younger, and the older is dropped whole when the younger is
/// full. So a flood of new tokens costs a bounded memory, and pushes out only what nobody asked for meanwhile.
struct GoodSignatures: Sendable {
    /// A digest with what signs it; the key that it was checked with hangs on what is signed, which names its chain.
    struct Entry: Hashable, Sendable {
        let digest: SHA256Digest
        let signature: [UInt8]

        func hash(into hasher: inout Hasher) { hasher.combine(digest: signature) }
    }

    private var young: Set<Entry> = []
    private var old: Set<Entry> = []
    private let capacity: Int

    /// - Parameter capacity: of one generation; some 300 bytes each.
    init(capacity: Int) { self.capacity = capacity }

    mutating func contains(_ entry: Entry) -> Bool {
        if young.contains(entry) { return true }
        guard old.contains(entry) else { return false }
        insert(entry)
        return true
    }

    mutating func insert(_ entry: Entry) {
        if young.count >= capacity {
            old = young
            young = []
        }
        young.insert(entry)
    }

    /// How many are remembered; for tests.
    var count: Int { young.union(old).count }
}
