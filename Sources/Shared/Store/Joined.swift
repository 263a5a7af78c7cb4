/// The in-memory twins of the joins in SQL, used to fold a batch so that no key stands twice in a statement.

/// A value of which the greatest (stamp, bytes) wins. No value at stamp −1 is the state before any write; no value at
/// a real stamp is a tombstone, smaller than any value of the same stamp.
struct StampedText: Equatable {
    private(set) var stamp: Int64 = -1
    private(set) var value: String?

    mutating func join(_ value: String?, at stamp: Int64) {
        guard stamp > self.stamp || stamp == self.stamp && Self.less(self.value, value) else { return }
        self.stamp = stamp
        self.value = value
    }

    private static func less(_ a: String?, _ b: String?) -> Bool {
        guard let b else { return false }
        guard let a else { return true }
        return a.utf8.lexicographicallyPrecedes(b.utf8)
    }
}

/// Who wrote last, of which the greatest (stamp, attested, reason) wins.
struct LastWrite: Equatable {
    private(set) var stamp: Int64 = -1
    private(set) var attested = false
    private(set) var reason: String?

    mutating func join(stamp: Int64, attested: Bool, reason: String?) {
        // An empty reason is none, so that the order of reasons has no two equal ends.
        let reason = reason == "" ? nil : reason
        guard isLess(than: stamp, attested, reason) else { return }
        self.stamp = stamp
        self.attested = attested
        self.reason = reason
    }

    private func isLess(than stamp: Int64, _ attested: Bool, _ reason: String?) -> Bool {
        if self.stamp != stamp { return self.stamp < stamp }
        if self.attested != attested { return attested }
        return (self.reason ?? "").utf8.lexicographicallyPrecedes((reason ?? "").utf8)
    }
}

/// The optional text of which the greater bytes win; nil is the least.
func greater(_ a: String?, _ b: String?) -> String? {
    guard let a else { return b }
    guard let b else { return a }
    return a.utf8.lexicographicallyPrecedes(b.utf8) ? b : a
}
