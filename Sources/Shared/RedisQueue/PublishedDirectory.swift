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

/// Counts of writes that were dropped because their bundle resolves to no app or to several, on their way from the
/// ingress to Postgres.
package struct UnresolvedCounts: Sendable {
    private let client: RedisClient
    private let keys: QueueKeys

    /// Names kept at the most: strangers choose them.
    private static let mostNames = 10_000

    package init(client: RedisClient, keys: QueueKeys) {
        self.client = client
        self.keys = keys
    }

    /// Adds counts by bundle id.
    package func add(_ counts: [String: Int64]) async throws(RedisError) {
        guard !counts.isEmpty else { return }
        var arguments: [RedisArgument] = [.integer(Int64(Self.mostNames))]
        for (name, count) in counts {
            arguments.append(.text(name))
            arguments.append(.integer(count))
        }
        _ = try await client.evaluate(
            QueueScripts.countUnresolved, keys: [.text(keys.unresolved)], arguments: arguments)
    }

    /// All counts that have not reached Postgres.
    package func all() async throws(RedisError) -> [String: Int64] {
        let items = try await client.command(["HGETALL", .text(keys.unresolved)]).elements ?? []
        var counts: [String: Int64] = [:]
        for index in stride(from: 0, to: items.count - 1, by: 2) {
            if let name = items[index].text, let count = items[index + 1].text.flatMap({ Int64($0) }) {
                counts[name] = count
            }
        }
        return counts
    }

    /// Takes away counts that have reached Postgres.
    package func forget(_ counts: [String: Int64]) async throws(RedisError) {
        guard !counts.isEmpty else { return }
        var arguments: [RedisArgument] = []
        for (name, count) in counts {
            arguments.append(.text(name))
            arguments.append(.integer(count))
        }
        _ = try await client.evaluate(
            QueueScripts.forgetUnresolved, keys: [.text(keys.unresolved)], arguments: arguments)
    }
}
