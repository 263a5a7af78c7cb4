internal import COpenSSL

/// A Lua script, called by its SHA-1. Keep each in a static constant: the digest is computed once, at creation.
package struct RedisScript: Sendable {
    /// What logs and metrics call it.
    package let name: String
    package let source: String
    /// Lower-case hexadecimal, as EVALSHA takes it.
    package let sha1: String

    package init(name: String, source: String) {
        self.name = name
        self.source = source
        let input = Array(source.utf8)
        let digest = [UInt8](unsafeUninitializedCapacity: 20) { buffer, count in
            // The shim writes exactly 20 bytes and reads `input.count`.
            copenssl_sha1(input, UInt64(input.count), buffer.baseAddress)
            count = 20
        }
        let digits = Array("0123456789abcdef".utf8)
        sha1 = String(decoding: digest.flatMap { [digits[Int($0 >> 4)], digits[Int($0 & 15)]] }, as: UTF8.self)
    }
}
