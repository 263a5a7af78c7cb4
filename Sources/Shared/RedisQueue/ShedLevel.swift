package import Jobs
package import Redis

/// How much of the intake an overloaded queue refuses: measured by whoever runs this loop (every writer), heeded by the
/// accept script.
package struct ShedLevel: Sendable {
    /// What was measured.
    package struct Load: Sendable, Equatable {
        /// Memory used, as a share of maxmemory; 0 when there is no limit.
        package var memory: Double
        /// Age of the oldest waiting job of any lane.
        package var oldestMilliseconds: Int64

        package init(memory: Double, oldestMilliseconds: Int64) {
            self.memory = memory
            self.oldestMilliseconds = oldestMilliseconds
        }
    }

    /// From these shares of maxmemory on, a level is in force. At maxmemory itself Redis refuses all intake; shedding
    /// keeps the last tenth for money and for live calls.
    private static let memoryLevels: [(share: Double, level: NewJob.Shedding)] = [
        (0.95, .attribute), (0.90, .identify), (0.80, .impressions),
    ]
    /// From these ages on: a backlog this old is worked off for hours, and what can be sent again should wait outside.
    /// Age alone never refuses money.
    private static let ageLevels: [(milliseconds: Int64, level: NewJob.Shedding)] = [
        (1_800_000, .identify), (600_000, .impressions),
    ]

    private let client: RedisClient
    private let keys: QueueKeys

    package init(client: RedisClient, keys: QueueKeys) {
        self.client = client
        self.keys = keys
    }

    /// The level that a load asks for.
    package static func level(_ load: Load) -> NewJob.Shedding {
        let byMemory = memoryLevels.first { load.memory >= $0.share }?.level ?? .never
        let byAge = ageLevels.first { load.oldestMilliseconds >= $0.milliseconds }?.level ?? .never
        return max(byMemory, byAge)
    }

    /// Asks Redis for its memory and its lanes. Of a cluster the fullest node counts: writes spread over all.
    /// - Parameter seen: told of the lanes, which are not asked for twice.
    package func load(_ seen: ([LaneStatistics]) -> Void = { _ in }) async throws(RedisError) -> Load {
        var memory = 0.0
        for server in try await client.everyPrimary(["INFO", "memory"]) {
            memory = max(memory, Self.memory(try server.reply.get().text ?? ""))
        }
        let lanes = try await QueueStatistics(client: client, keys: keys).lanes()
        seen(lanes)
        return Load(
            memory: memory,
            oldestMilliseconds: lanes.compactMap(\.oldestWaitingMilliseconds).max() ?? 0)
    }

    /// The share of maxmemory that is used, from the lines of INFO.
    private static func memory(_ info: String) -> Double {
        var values: [Substring: Double] = [:]
        for line in info.split(whereSeparator: \.isNewline) {
            let parts = line.split(separator: ":", maxSplits: 1)
            if parts.count == 2, let value = Double(parts[1]) { values[parts[0]] = value }
        }
        let most = values["maxmemory"] ?? 0
        return most > 0 ? (values["used_memory"] ?? 0) / most : 0
    }

    /// Measures and writes the level of every partition.
    /// - Parameter seen: as of `load`.
    /// - Returns: the level now in force.
    package func update(_ seen: ([LaneStatistics]) -> Void = { _ in }) async throws(RedisError) -> NewJob.Shedding {
        let level = Self.level(try await load(seen))
        for partition in 0..<keys.partitions {
            _ = try await client.evaluate(
                QueueScripts.shed, keys: [.text(keys.meta(partition))], arguments: [.integer(Int64(level.rawValue))])
        }
        return level
    }
}
