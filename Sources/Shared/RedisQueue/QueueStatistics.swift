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
    /// Until the next delayed job is due; negative when nobody has moved it yet, nil without delayed jobs.
    package var nextDueMilliseconds: Int64?
    package var parked: Int64 = 0
    /// Dead letters that Redis holds: those not copied to Postgres yet, and of the copied ones what the caps leave. The
    /// whole number is Postgres' to say.
    package var dead: Int64 = 0
    /// Age of the oldest waiting job; nil when none waits.
    package var oldestWaitingMilliseconds: Int64?
    package var paused = false

    /// What a drain waits for.
    package var left: Int64 { waiting + pending + due + parked }
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
        let parts = time.elements?.compactMap { $0.text.flatMap { Int64($0) } } ?? []
        guard parts.count == 2 else {
            throw RedisError(code: .protocolViolation, message: "TIME answered in another form")
        }
        let now = parts[0] * 1000 + parts[1] / 1000
        var all = Lane.allCases.map { LaneStatistics(lane: $0) }
        for order in try await QueueOrders(client: client, keys: keys).list()
        where order.scope == .lane && order.action == .pause {
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
            ["ZRANGE", .text(keys.due(partition, lane)), "0", "0", "WITHSCORES"],
        ])
        func number(_ index: Int) throws(RedisError) -> Int64 { try answers[index].get().int64 ?? 0 }
        let length = try number(0)
        // A lane that no worker has looked at yet has no group, and nothing pending. Any other error is no zero.
        var pending: Int64 = 0
        do throws(RedisError) {
            pending = try answers[1].get().elements?.first?.int64 ?? 0
        } catch {
            guard error.code == .server("NOGROUP") else { throw error }
        }
        sum.waiting += max(0, length - pending)
        sum.pending += pending
        sum.due += try number(3)
        sum.parked += try number(4)
        sum.dead += try number(5)
        if let score = try answers[6].get().elements?.last?.text, let due = Double(score),
            let milliseconds = Int64(exactly: due.rounded())
        {
            sum.nextDueMilliseconds = min(sum.nextDueMilliseconds ?? .max, milliseconds - now)
        }
        guard length > pending else { return }
        let last = Self.lastDelivered(try answers[2].get())
        let first = try await client.command(["XRANGE", stream, .text("(\(last)"), "+", "COUNT", "1"])
        guard let id = first.elements?.first?.elements?.first?.text,
            let added = id.split(separator: "-").first.flatMap({ Int64($0) })
        else { return }
        sum.oldestWaitingMilliseconds = max(sum.oldestWaitingMilliseconds ?? 0, max(0, now - added))
    }

    /// Jobs of a kind that are not ended, in every lane and place.
    package func backlog(kind: String) async throws(RedisError) -> Int64 { try await backlog("kind:" + kind) }

    /// Jobs of an organization that are not ended, in every lane and place.
    package func backlog(organization: String) async throws(RedisError) -> Int64 { try await backlog(organization) }

    private func backlog(_ field: String) async throws(RedisError) -> Int64 {
        var sum: Int64 = 0
        for partition in 0..<keys.partitions {
            sum += try await client.command(["HGET", .text(keys.backlog(partition)), .text(field)]).int64 ?? 0
        }
        return sum
    }

    /// How many workers of a lane live, as far as they ever got a job of it.
    package func liveWorkers(_ lane: Lane) async throws(RedisError) -> Int {
        var names: Set<String> = []
        for partition in 0..<keys.partitions {
            let command: [RedisArgument] = [
                "XINFO", "CONSUMERS", .text(keys.lane(partition, lane)), .text(QueueKeys.group),
            ]
            // Without a stream or a group nobody has looked at it yet.
            guard let consumers = try? await client.pipeline([command])[0].get().elements else { continue }
            for consumer in consumers {
                if let fields = consumer.elements, fields.count > 1, let name = fields[1].text { names.insert(name) }
            }
        }
        var count = 0
        for name in names where try await client.command(["EXISTS", .text(keys.live(name))]).int64 == 1 { count += 1 }
        return count
    }

    private static func lastDelivered(_ groups: RedisValue) -> String {
        let fields = groups.elements?.first?.elements ?? []
        for index in stride(from: 0, to: fields.count - 1, by: 2) where fields[index].text == "last-delivered-id" {
            return fields[index + 1].text ?? "0-0"
        }
        return "0-0"
    }
}
