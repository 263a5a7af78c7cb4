package import Redis

/// Bringing a Redis that knows nothing (new or wiped) into service.
package struct QueueSeed: Sendable {
    private let client: RedisClient
    private let keys: QueueKeys

    package init(client: RedisClient, keys: QueueKeys) {
        self.client = client
        self.keys = keys
    }

    /// The queue in this Redis has another form than this program was started for.
    package struct Mismatch: Error, Sendable {
        package let message: String
    }

    /// Refuses a queue that was made in another form. A queue that nobody has seeded yet fits.
    /// - Throws: `Mismatch`, or `RedisError` when Redis is away.
    package func checkShape() async throws {
        let answer = try await client.command(["HMGET", .text(keys.meta(0)), "layout", "partitions"])
        let stands = answer.elements?.compactMap(\.text) ?? []
        if !stands.isEmpty { try check(stands) }
    }

    private func check(_ stands: [String]) throws(Mismatch) {
        guard stands != [String(QueueKeys.layoutVersion), String(keys.partitions)] else { return }
        throw Mismatch(
            message: "the queue in Redis has layout \(stands.first ?? "?") and \(stands.last ?? "?") partitions,"
                + " this program wants layout \(QueueKeys.layoutVersion) and \(keys.partitions)"
                + " (RATCHET_PARTITIONS)")
    }

    /// Whether every partition is seeded, or nil when Redis doesn't answer.
    package func isSeeded() async -> Bool? {
        let answers = await client.pipeline((0..<keys.partitions).map { ["HGET", .text(keys.meta($0)), "seeded"] })
        var all = true
        for answer in answers {
            guard case .success(let value) = answer else { return nil }
            if value.text != "1" { all = false }
        }
        return all
    }

    /// Marks every partition as seeded. Safe to repeat and to run from several writers at once.
    /// - Throws: `Mismatch` when the queue was made with another number of partitions or layout (a retry can't help),
    ///   `RedisError` when Redis is away (a retry helps).
    package func seed() async throws {
        for partition in 0..<keys.partitions {
            let answer = try await client.evaluate(
                QueueScripts.seed, keys: [.text(keys.meta(partition))],
                arguments: [.integer(Int64(QueueKeys.layoutVersion)), .integer(Int64(keys.partitions))])
            try check(answer.elements?.map { $0.text ?? "?" } ?? [])
        }
    }
}
