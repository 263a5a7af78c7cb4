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
        String(unsafeUninitializedCapacity: 36) { buffer in
            var place = 0
            for index in bytes.indices {
                if index == 4 || index == 6 || index == 8 || index == 10 {
                    buffer[place] = 0x2d
                    place += 1
                }
                buffer[place] = Hex.digit(bytes[index] >> 4)
                buffer[place + 1] = Hex.digit(bytes[index] & 15)
                place += 2
            }
            return place
        }
    }
}
