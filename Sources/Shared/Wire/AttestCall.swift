package import Bytes
package import JSON

/// A `POST /api/sdk/v1/attest` that passed the rules of its fields. Nothing of it is proven.
package struct AttestCall: Equatable, Sendable {
    /// 32 bytes: by App Attest's rule the SHA-256 of the public key.
    package var keyID: [UInt8]
    /// The attestation object, at most `SDKLimits.attestationBytes`.
    package var attestation: [UInt8]
    /// As it came: whether it is one of ours is for its maker to say.
    package var challenge: String
    package var bundleID: String

    /// The same for an equal repeat of a call alone: it gets a new token for the same device.
    package var digest: SHA256Digest {
        SHA256Digest(
            ofParts: ["ratchet.attest", Hex.encode(keyID), SHA256Digest(of: attestation).hex, challenge])
    }
}

extension Validated where Write == AttestCall {
    /// Reads the body. The parser is only borrowed.
    package init(body: [UInt8], using parser: JSONParser) throws(WireError) {
        try self.init(body: body, using: parser) { body throws(WireError) in try Self(validating: body) }
    }

    /// Checks a parsed body. The first fault in this order is the one that is told: no object; a required field that is
    /// missing (keyId, attestation, challenge, bundleId); an invalid one (the same order).
    init(validating body: JSONNode) throws(WireError) {
        let fields = try RequestFields(body)
        let keyID = try fields.required(.keyId)
        let attestation = try fields.required(.attestation)
        let challenge = try fields.required(.challenge)
        let bundleID = try fields.required(.bundleId)
        guard let key = Self.base64(keyID), key.count == SDKLimits.keyIDBytes else {
            throw WireError(.invalidField, "keyId must be base64 of 32 bytes", field: "keyId")
        }
        guard let object = Self.base64(attestation), 1...SDKLimits.attestationBytes ~= object.count else {
            throw WireError(
                .invalidField, "attestation must be base64 of at most \(SDKLimits.attestationBytes) bytes",
                field: "attestation")
        }
        guard let text = challenge.string, text.utf8.count <= SDKLimits.challengeBytes, !text.isEmpty,
            Base64.decode(Array(text.utf8), .url) != nil
        else {
            throw WireError(.invalidField, "challenge must be the text that was given out", field: "challenge")
        }
        self.init(
            write: AttestCall(
                keyID: key, attestation: object, challenge: text, bundleID: try RequestFields.bundleID(bundleID)))
    }

    /// Either alphabet, padded or not: SDKs differ.
    private static func base64(_ value: JSONNode) -> [UInt8]? {
        guard value.isString else { return nil }
        let text = value.bytes
        if let bytes = Base64.decode(text, .standard) { return bytes }
        let padding = text.count % 4 == 0 ? text.suffix(2).count { $0 == UInt8(ascii: "=") } : 0
        if let bytes = Base64.decode(text.dropLast(padding), .url) { return bytes }
        let missing = (4 - text.count % 4) % 4
        return Base64.decode(Array(text) + Array(repeating: UInt8(ascii: "="), count: missing), .standard)
    }
}
