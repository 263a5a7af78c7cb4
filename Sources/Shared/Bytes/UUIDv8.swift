/// A UUID of version 8 (RFC 9562 §5.8): custom bits, here the head of a SHA-256.
package struct UUIDv8: Hashable, Sendable, CustomStringConvertible {
    /// The 16 bytes in network order.
    package let bytes: [UInt8]

    /// The UUID that a digest names: its first 16 bytes with version and variant set.
    package init(_ digest: SHA256Digest) {
        var head = Array(digest.bytes[0..<16])
        head[6] = head[6] & 0x0f | 0x80
        head[8] = head[8] & 0x3f | 0x80
        bytes = head
    }

    /// A few bytes of a digest tell it from all others, and cost a sixteenth of hashing each by itself.
    package func hash(into hasher: inout Hasher) { hasher.combine(digest: bytes) }

    /// The primary key of a customer: the same on every machine for the same organization and id, so that two writers
    /// can't make two, and identify can answer it before the row exists.
    package static func customer(organization: String, appUserID: String) -> UUIDv8 {
        UUIDv8(SHA256Digest(ofParts: ["ratchet.customer", organization, appUserID]))
    }

    /// 36 lower-case characters, `8-4-4-4-12`.
    package var description: String {
        let hex = Array(Hex.encode(bytes).utf8)
        var text: [UInt8] = []
        text.reserveCapacity(36)
        for (index, character) in hex.enumerated() {
            if index == 8 || index == 12 || index == 16 || index == 20 { text.append(0x2d) }
            text.append(character)
        }
        return String(decoding: text, as: UTF8.self)
    }
}
