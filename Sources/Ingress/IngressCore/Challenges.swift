internal import Bytes

/// Gives out App Attest challenges and knows them again, without remembering any: a challenge carries its own end and
/// proof, so a flood of requests for them costs no memory anywhere. That one is used only once is for Redis to say.
package struct Challenges: Sendable {
    /// Five minutes (seed 000).
    package static let lifeMilliseconds: Int64 = 300_000

    private static let version: UInt8 = 1
    private static let randomBytes = 16
    /// Half of an HMAC-SHA-256: 2^128 tries to forge one, each of them a call.
    private static let proofBytes = 16
    /// Version, end, random.
    private static let bodyBytes = 1 + 8 + randomBytes

    private let key: [UInt8]

    /// - Parameter secret: the same for all ingress processes (RATCHET_SECRET).
    package init(secret: [UInt8]) {
        // Of its own, so that nothing else that is keyed by the secret can be taken for a challenge.
        key = Secrets.hmac(key: secret, Array("ratchet.challenge".utf8))
    }

    /// A new one, base64url.
    package func make(nowMilliseconds: Int64) -> String {
        var bytes = [Self.version]
        let end = nowMilliseconds + Self.lifeMilliseconds
        withUnsafeBytes(of: end.bigEndian) { bytes.append(contentsOf: $0) }
        bytes += Secrets.random(Self.randomBytes)
        return Base64.encode(bytes + proof(of: bytes), .url)
    }

    /// What is known of a challenge that is ours and lives.
    package struct Issued: Equatable, Sendable {
        package let millisecondsLeft: Int64
        /// What a device attests its key with: the SHA-256 of the challenge's bytes, not of their text (sdk-api.md §2).
        package let clientDataHash: [UInt8]
    }

    /// Reads one that comes back; nil when it is none of ours or its time is over.
    package func read(_ challenge: String, nowMilliseconds: Int64) -> Issued? {
        guard let bytes = Base64.decode(Array(challenge.utf8), .url),
            bytes.count == Self.bodyBytes + Self.proofBytes, bytes[0] == Self.version
        else { return nil }
        let body = Array(bytes.prefix(Self.bodyBytes))
        guard Secrets.equal(proof(of: body), Array(bytes.suffix(Self.proofBytes))) else { return nil }
        let end = body[1..<9].reduce(Int64(0)) { $0 << 8 | Int64($1) }
        // Its maker's clock may differ from this one's by a little; one from far ahead has a broken clock behind it.
        guard end > nowMilliseconds, end - nowMilliseconds <= 2 * Self.lifeMilliseconds else { return nil }
        return Issued(
            millisecondsLeft: end - nowMilliseconds, clientDataHash: SHA256Digest(of: bytes).bytes)
    }

    private func proof(of body: [UInt8]) -> [UInt8] {
        Array(Secrets.hmac(key: key, body).prefix(Self.proofBytes))
    }
}
