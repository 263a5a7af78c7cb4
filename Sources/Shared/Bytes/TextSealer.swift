internal import COpenSSL

/// Keeps secrets that must be read again later, such as a token on its way to Apple: AES-256-GCM under a key of its own
/// for each purpose. The form is a version byte, 12 random bytes, the text, 16 bytes of proof.
///
/// Random nonces are safe for 2³² texts under one key (NIST SP 800-38D 8.3); a day's tokens of the largest app are
/// 2²³, and every purpose has its own key.
package struct TextSealer: Sendable {
    private static let version: UInt8 = 1
    private static let nonceBytes = 12
    private static let tagBytes = 16
    /// What sealing adds to a text.
    package static let overheadBytes = 1 + nonceBytes + tagBytes

    private let key: [UInt8]

    /// - Parameters:
    ///   - secret: the same for all processes that seal and open (RATCHET_SECRET).
    ///   - purpose: a fixed word; what is sealed for one purpose can't be opened for another.
    package init(secret: [UInt8], purpose: String) {
        key = Secrets.hmac(key: secret, Array("ratchet.seal.\(purpose)".utf8))
    }

    /// - Parameter context: what the text belongs to; it opens in the same context alone. Not part of the result.
    package func seal(_ text: [UInt8], context: [UInt8]) -> [UInt8] {
        let nonce = Secrets.random(Self.nonceBytes)
        var tag = [UInt8](repeating: 0, count: Self.tagBytes)
        let sealed = [UInt8](unsafeUninitializedCapacity: text.count + 1) { buffer, count in
            // One byte more than needed, so that an empty text has a place to point to as well.
            let done = copenssl_aes256gcm_seal(
                key, nonce, context, UInt64(context.count), text, UInt64(text.count), buffer.baseAddress, &tag)
            // Only without memory, or for gigabytes, which no caller holds.
            precondition(done == 1, "sealing failed")
            count = text.count
        }
        return [Self.version] + nonce + sealed + tag
    }

    /// - Returns: nil for what was not sealed with this secret, for this purpose and in this context. No retry helps.
    package func open(_ sealed: [UInt8], context: [UInt8]) -> [UInt8]? {
        guard sealed.count >= Self.overheadBytes, sealed[0] == Self.version else { return nil }
        let nonce = Array(sealed[1..<1 + Self.nonceBytes])
        let text = Array(sealed[(1 + Self.nonceBytes)..<(sealed.count - Self.tagBytes)])
        let tag = Array(sealed.suffix(Self.tagBytes))
        var opened = false
        let result = [UInt8](unsafeUninitializedCapacity: text.count + 1) { buffer, count in
            opened =
                copenssl_aes256gcm_open(
                    key, nonce, context, UInt64(context.count), text, UInt64(text.count), tag, buffer.baseAddress) == 1
            count = opened ? text.count : 0
        }
        return opened ? result : nil
    }
}
