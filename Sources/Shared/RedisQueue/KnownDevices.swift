package import Redis

/// What Redis knows of device tokens and challenges. Everything here can be made anew from Postgres or is short-lived:
/// a wiped Redis costs a question more for each token.
package struct KnownDevices: Sendable {
    /// An entry outlives the ingress caches many times; asking a writer again every ten minutes costs next to nothing. Not
    /// longer: a Redis that is put back to an earlier state brings back tokens that were revoked since, but no entry whose
    /// time has passed.
    package static let deviceMilliseconds: Int64 = 600_000
    /// Longer than any answer can be under way that was read before the revocation.
    private static let revokedMilliseconds: Int64 = 600_000

    private let client: RedisClient
    private let keys: QueueKeys

    package init(client: RedisClient, keys: QueueKeys) {
        self.client = client
        self.keys = keys
    }

    /// What stands there about a token, by its SHA-256; nil when nothing does.
    package func look(_ tokenHash: [UInt8]) async throws(RedisError) -> [UInt8]? {
        try await client.command(["GET", .text(keys.device(tokenHash))]).bytes
    }

    /// Notes what Postgres says of a token, unless it was revoked meanwhile.
    /// - Returns: what stands there now.
    package func remember(_ tokenHash: [UInt8], _ facts: [UInt8]) async throws(RedisError) -> [UInt8] {
        try await client.evaluate(
            QueueScripts.rememberDevice, keys: [.text(keys.device(tokenHash))],
            arguments: [.bytes(facts), .integer(Self.deviceMilliseconds)]
        ).bytes ?? facts
    }

    /// Ends a token in Redis, and tells every ingress.
    /// - Parameter nobody: the text for a token that is nobody's.
    package func revoke(_ tokenHash: [UInt8], nobody: [UInt8]) async throws(RedisError) {
        _ = try await client.evaluate(
            QueueScripts.revokeDevice, keys: [.text(keys.device(tokenHash))],
            arguments: [.bytes(nobody), .integer(Self.revokedMilliseconds)])
        _ = try await client.command(["PUBLISH", .text(keys.revocations), .bytes(tokenHash)])
    }

    /// Uses a challenge up.
    /// - Parameters:
    ///   - hash: SHA-256 of the challenge.
    ///   - callDigest: the same for an equal repeat of the call, which may pass.
    ///   - milliseconds: how long the challenge would live.
    /// - Returns: false when another call used it before.
    package func useChallenge(
        _ hash: [UInt8], callDigest: [UInt8], milliseconds: Int64
    ) async throws(RedisError) -> Bool {
        try await client.evaluate(
            QueueScripts.useChallenge, keys: [.text(keys.used(hash))],
            arguments: [.bytes(callDigest), .integer(max(1, milliseconds))]
        ).int64 == 1
    }
}
