package import Jobs
package import Redis

/// What operators ask of a lane. O(partitions) commands, each O(1) or bounded.
package struct LaneStatistics: Sendable, Equatable {
    package var lane: Lane
    /// Accepted and not handed out.
    package var waiting: Int64 = 0
    /// In the hands of a worker.
    package var pending: Int64 = 0
    /// Delayed jobs, due or not.
    package var due: Int64 = 0
    package var parked: Int64 = 0
    /// Dead letters that Redis holds: those not copied to Postgres yet, and of the copied ones what the caps leave. The
    /// whole number is Postgres' to say.
    package var dead: Int64 = 0
    /// Age of the oldest waiting job; nil when none waits.
    package var oldestWaitingMilliseconds: Int64?
    package var paused = false
}

/// Reads the queue for people and metrics.
package struct QueueStatistics: Sendable {
    private let client: RedisClient
    private let keys: QueueKeys

    package init(client: RedisClient, keys: QueueKeys) {
        self.client = client
        self.keys = keys
    }

    /// All lanes, in `Lane` order. The numbers of one partition are of one moment, those of different ones are not.
    package func lanes() async throws(RedisError) -> [LaneStatistics] {
        let time = try await client.command(["TIME"])
        guard let now = time.elements?.first?.text.flatMap({ Int64($0) }).map({ $0 * 1000 }) else {
            throw RedisError(code: .protocolViolation, message: "TIME answered in another form")
        }
        var all = Lane.allCases.map { LaneStatistics(lane: $0) }
        for order in try await QueueOrders(client: client, keys: keys).list() where order.scope == .lane {
            if let lane = Lane(name: order.target) { all[lane.rawValue].paused = true }
        }
        for partition in 0..<keys.partitions {
            for lane in Lane.allCases { try await add(partition, lane, now, &all[lane.rawValue]) }
        }
        return all
    }

    private func add(
        _ partition: Int, _ lane: Lane, _ now: Int64, _ sum: inout LaneStatistics
    ) async throws(RedisError) {
        let stream = RedisArgument.text(keys.lane(partition, lane))
        let answers = await client.pipeline([
            ["XLEN", stream],
            ["XPENDING", stream, .text(QueueKeys.group)],
            ["XINFO", "GROUPS", stream],
            ["ZCARD", .text(keys.due(partition, lane))],
            ["XLEN", .text(keys.parked(partition, lane))],
            ["XLEN", .text(keys.dead(partition, lane))],
        ])
        func number(_ index: Int) throws(RedisError) -> Int64 { try answers[index].get().int64 ?? 0 }
        let length = try number(0)
        // A lane that no worker has looked at yet has no group, and nothing pending.
        var pending: Int64 = 0
        if case .success(let value) = answers[1] { pending = value.elements?.first?.int64 ?? 0 }
        sum.waiting += max(0, length - pending)
        sum.pending += pending
        sum.due += try number(3)
        sum.parked += try number(4)
        sum.dead += try number(5)
        guard length > pending else { return }
        var last = "0-0"
        if case .success(let value) = answers[2] { last = Self.lastDelivered(value) }
        let first = try await client.command(["XRANGE", stream, .text("(\(last)"), "+", "COUNT", "1"])
        guard let id = first.elements?.first?.elements?.first?.text,
            let added = id.split(separator: "-").first.flatMap({ Int64($0) })
        else { return }
        sum.oldestWaitingMilliseconds = max(sum.oldestWaitingMilliseconds ?? 0, max(0, now - added))
    }

    private static func lastDelivered(_ groups: RedisValue) -> String {
        let fields = groups.elements?.first?.elements ?? []
        for index in stride(from: 0, to: fields.count - 1, by: 2) where fields[index].text == "last-delivered-id" {
            return fields[index + 1].text ?? "0-0"
        }
        return "0-0"
    }
}
