/// A UUID of version 8 (RFC 9562 §5.8): custom bits, here the head of a SHA-256.
package struct UUIDv8: Hashable, Comparable, Sendable, CustomStringConvertible {
    /// The first and the last 8 bytes, read in network order: two words cost nothing to copy, compare and hash.
    package let high: UInt64
    package let low: UInt64

    /// The UUID that a digest names: its first 16 bytes with version and variant set.
    package init(_ digest: SHA256Digest) {
        let (high, low) = digest.bytes.withUnsafeBytes { bytes in
            (bytes.loadUnaligned(as: UInt64.self), bytes.loadUnaligned(fromByteOffset: 8, as: UInt64.self))
        }
        self.high = UInt64(bigEndian: high) & ~0xf000 | 0x8000
        self.low = UInt64(bigEndian: low) & ~(0b11 << 62) | 0b10 << 62
    }

    /// The 16 bytes in network order.
    package var bytes: [UInt8] { [high.bigEndian, low.bigEndian].withUnsafeBytes { Array($0) } }

    /// In the order of the bytes, which is that of Postgres.
    package static func < (a: UUIDv8, b: UUIDv8) -> Bool { a.high != b.high ? a.high < b.high : a.low < b.low }

    /// The primary key of a customer: the same on every machine for the same organization and id, so that two writers
    /// can't make two, and identify can answer it before the row exists.
    package static func customer(organization: String, appUserID: String) -> UUIDv8 {
        UUIDv8(SHA256Digest(ofParts: ["ratchet.customer", organization, appUserID]))
    }

    /// 36 lower-case characters, `8-4-4-4-12`.
    package var description: String {
        // Made once, not for each digit.
        let bytes = bytes
        return String(unsafeUninitializedCapacity: 36) { buffer in
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
