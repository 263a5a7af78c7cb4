package import Redis

/// The app directory as it stands in Redis: written by writers, read by ingress processes.
package struct PublishedDirectory: Sendable {
    private let client: RedisClient
    private let keys: QueueKeys

    package init(client: RedisClient, keys: QueueKeys) {
        self.client = client
        self.keys = keys
    }

    /// Publishes a version unless a newer one stands there.
    /// - Returns: the version that stands there now.
    package func publish(version: Int64, body: [UInt8]) async throws(RedisError) -> Int64 {
        let answer = try await client.evaluate(
            QueueScripts.publish, keys: [.text(keys.directory)], arguments: [.integer(version), .bytes(body)])
        return answer.int64 ?? -1
    }

    /// The version that stands there; nil when none does.
    package func version() async throws(RedisError) -> Int64? {
        let answer = try await client.command(["HGET", .text(keys.directory), "version"])
        return answer.text.flatMap { Int64($0) }
    }

    /// Version and body together; nil when none stands there.
    package func snapshot() async throws(RedisError) -> (version: Int64, body: [UInt8])? {
        let answer = try await client.command(["HMGET", .text(keys.directory), "version", "body"])
        guard let items = answer.elements, items.count == 2, let version = items[0].text.flatMap({ Int64($0) }),
            let body = items[1].bytes
        else { return nil }
        return (version, body)
    }
}
