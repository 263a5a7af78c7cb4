internal import COpenSSL

/// SHA-256 (FIPS 180-4) of byte strings.
package struct SHA256Digest: Hashable, Sendable {
    /// The 32 bytes of the digest.
    package let bytes: [UInt8]

    /// The digest of one byte string.
    package init(of input: [UInt8]) {
        self = input.withUnsafeBufferPointer { SHA256Digest(of: $0) }
    }

    /// The same for bytes that the caller lends.
    package init(of input: UnsafeBufferPointer<UInt8>) {
        // An array of uninitialized memory is made by code that is not specialized, and costs more than these zeros.
        var bytes = [UInt8](repeating: 0, count: 32)
        bytes.withUnsafeMutableBufferPointer {
            copenssl_sha256(input.baseAddress, UInt64(input.count), $0.baseAddress)
        }
        self.bytes = bytes
    }

    /// The digest of several parts with a zero byte between each two: unambiguous when no part but the last holds a
    /// zero byte.
    package init(ofParts parts: [String]) {
        let size = parts.reduce(parts.count) { $0 + $1.utf8.count }
        self = withUnsafeTemporaryAllocation(of: UInt8.self, capacity: size) { joined in
            var count = 0
            for index in parts.indices {
                if index > 0 {
                    joined[count] = 0
                    count += 1
                }
                var part = parts[index]
                part.withUTF8 { text in
                    _ = UnsafeMutableBufferPointer(rebasing: joined[count...]).update(fromContentsOf: text)
                    count += text.count
                }
            }
            return SHA256Digest(of: UnsafeBufferPointer(rebasing: joined[..<count]))
        }
    }

    /// Lower-case hexadecimal, 64 characters.
    package var hex: String { hex(ofFirst: 32) }

    /// The same of the first bytes alone, at most 32.
    package func hex(ofFirst count: Int) -> String {
        bytes.withUnsafeBufferPointer { Hex.encode(contiguous: UnsafeBufferPointer(rebasing: $0[..<count])) }
    }
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
