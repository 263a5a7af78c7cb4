internal import Bytes

/// The parts of a JWS in compact serialization (RFC 7515 §3.1), as slices of the caller's bytes: valid as long as those.
struct CompactJWS {
    /// Header and payload with the dot between them: what is signed.
    let signingInput: UnsafeBufferPointer<UInt8>
    /// Still base64url.
    let header: UnsafeBufferPointer<UInt8>
    /// Decoded.
    let payload: [UInt8]
    /// Decoded; any length.
    let signature: [UInt8]

    /// Real ones have about 5.5 KB.
    static let maximumBytes = 65_536

    init(_ text: UnsafeBufferPointer<UInt8>) throws(Refusal) {
        guard text.count <= Self.maximumBytes else { throw Refusal(.malformedJWS, "longer than 65,536 bytes") }
        let dot = UInt8(ascii: ".")
        guard let first = text.firstIndex(of: dot), let second = text[(first + 1)...].firstIndex(of: dot),
            first > 0, second > first + 1, second + 1 < text.count
        else { throw Refusal(.malformedJWS, "not three parts with dots between") }
        signingInput = UnsafeBufferPointer(rebasing: text[..<second])
        header = UnsafeBufferPointer(rebasing: text[..<first])
        // A further dot is a foreign character to the decoder.
        guard
            let payload = Base64.decode(UnsafeBufferPointer(rebasing: text[(first + 1)..<second]), .url),
            let signature = Base64.decode(UnsafeBufferPointer(rebasing: text[(second + 1)...]), .url)
        else { throw Self.notBase64 }
        self.payload = payload
        self.signature = signature
    }

    func decodedHeader() throws(Refusal) -> [UInt8] {
        guard let bytes = Base64.decode(header, .url) else { throw Self.notBase64 }
        return bytes
    }

    private static let notBase64 = Refusal(.malformedJWS, "a part is not exact base64url")
}
