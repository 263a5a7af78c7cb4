package import Jobs
package import Redis

/// Delayed jobs, before their time.
package struct DelayedJobs: Sendable {
    private let client: RedisClient
    private let keys: QueueKeys

    package init(client: RedisClient, keys: QueueKeys) {
        self.client = client
        self.keys = keys
    }

    /// Moves the delayed jobs of a lane back into it, due or not. Those that fail again meanwhile keep their new delay.
    /// - Parameter progress: told after each call how many are moved; false stops it there.
    /// - Returns: how many were moved.
    package func promote(
        _ lane: Lane, progress: @Sendable (Int64) -> Bool = { _ in true }
    ) async throws(RedisError) -> Int64 {
        var moved: Int64 = 0
        for partition in 0..<keys.partitions {
            var left = try await client.command(["ZCARD", .text(keys.due(partition, lane))]).int64 ?? 0
            while left > 0 {
                let answer = try await client.evaluate(
                    QueueScripts.promote,
                    keys: [
                        .text(keys.due(partition, lane)), .text(keys.later(partition, lane)),
                        .text(keys.lane(partition, lane)),
                    ],
                    arguments: [.integer(min(left, Int64(QueueScripts.mostEntries))), "+inf"])
                let count = answer.elements?.first?.int64 ?? 0
                moved += count
                left = count == 0 ? 0 : left - count
                guard progress(moved) else { return moved }
            }
        }
        return moved
    }
}
