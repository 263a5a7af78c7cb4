internal import COpenSSL

/// SHA-256 (FIPS 180-4) of byte strings.
package struct SHA256Digest: Hashable, Sendable {
    /// The 32 bytes of the digest.
    package let bytes: [UInt8]

    /// The digest of one byte string.
    package init(of input: [UInt8]) {
        bytes = [UInt8](unsafeUninitializedCapacity: 32) { buffer, count in
            input.withUnsafeBufferPointer { source in
                copenssl_sha256(source.baseAddress, UInt64(source.count), buffer.baseAddress)
            }
            count = 32
        }
    }

    /// The digest of several parts with a zero byte between each two: unambiguous when no part but the last holds a
    /// zero byte.
    package init(ofParts parts: [String]) {
        var joined: [UInt8] = []
        joined.reserveCapacity(parts.reduce(parts.count) { $0 + $1.utf8.count })
        for (index, part) in parts.enumerated() {
            if index > 0 { joined.append(0) }
            joined.append(contentsOf: part.utf8)
        }
        self.init(of: joined)
    }

    /// Lower-case hexadecimal, 64 characters.
    package var hex: String { Hex.encode(bytes) }
}

extension Hasher {
    /// Feeds the head of a digest, which is as good as random: hashing an array's bytes one by one costs more than all else
    /// of a look into a table.
    /// - Parameter digest: 8 bytes or more of one length.
    package mutating func combine(digest: [UInt8]) {
        digest.withUnsafeBytes { combine(bytes: UnsafeRawBufferPointer(rebasing: $0.prefix(8))) }
    }
}

/// Secret-dependent comparisons and random bytes.
package enum Secrets {
    /// Whether two byte strings are equal, in time that depends on their lengths alone.
    package static func equal(_ a: [UInt8], _ b: [UInt8]) -> Bool {
        a.count == b.count && copenssl_equal(a, b, UInt64(a.count)) == 1
    }

    /// Bytes fit for keys and tokens. Traps when the system has no entropy: going on would mint guessable secrets.
    package static func random(_ count: Int) -> [UInt8] {
        [UInt8](unsafeUninitializedCapacity: count) { buffer, filled in
            precondition(copenssl_random(buffer.baseAddress, UInt64(count)) == 1, "no entropy")
            filled = count
        }
    }

    /// HMAC-SHA-256 (RFC 2104), 32 bytes.
    package static func hmac(key: [UInt8], _ message: [UInt8]) -> [UInt8] {
        [UInt8](unsafeUninitializedCapacity: 32) { buffer, filled in
            copenssl_hmac_sha256(key, UInt64(key.count), message, UInt64(message.count), buffer.baseAddress)
            filled = 32
        }
    }
}
