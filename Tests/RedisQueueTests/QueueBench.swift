import EventLoop
import Jobs
import Redis
import RedisQueue
import TestSupport

/// One queue of its own on a Redis that tests share, and workers on it.
struct QueueBench: Sendable {
    let loop: EventLoop
    let client: RedisClient
    let keys: QueueKeys
    let sink: RedisJobSink

    /// - Parameters:
    ///   - seeded: false leaves the queue as a wiped Redis would.
    ///   - redis: a server of the test's own; nil is the one, or the cluster, that `onEachRedis` runs the test on.
    static func make(
        partitions: Int = 2, seeded: Bool = true, redis: TestRedis? = nil,
        configuration: RedisJobSink.Configuration = .init()
    ) async throws -> QueueBench {
        let (address, prefix) =
            if let redis { (redis.address, redis.keyPrefix()) } else { try await SharedRedis.current.use() }
        let loop = EventLoop(name: "queue-test")
        let keys = QueueKeys(prefix: prefix, partitions: partitions)
        return try await loop.run {
            let client = RedisClient(
                loop: loop, address: address,
                configuration: RedisClientConfiguration(commandTimeoutMilliseconds: 60_000))
            _ = await client.waitUntilConnected(milliseconds: 20_000)
            if seeded { try await QueueSeed(client: client, keys: keys).seed() }
            return QueueBench(
                loop: loop, client: client, keys: keys,
                sink: RedisJobSink(loop: loop, client: client, keys: keys, configuration: configuration))
        }
    }

    /// A worker's side; it lives (has its `live:` key) unless told otherwise.
    func worker(_ name: String, stage: Stage = .write, alive: Bool = true) async throws -> RedisJobSource {
        try await loop.run {
            let waiter = RedisClient(
                loop: loop, address: client.address,
                configuration: RedisClientConfiguration(
                    commandTimeoutMilliseconds: 60_000, connectionWaitMilliseconds: 20_000,
                    clientName: keys.prefix + name, connectionPerSlot: true))
            _ = await waiter.waitUntilConnected(milliseconds: 20_000)
            // It stays alive however long the test takes. A beat says nothing when it came too late.
            while alive, try await client.command(["PERSIST", .text(keys.live(name))]).int64 != 1 {
                await LiveProcess(name: name, loop: loop, client: client, keys: keys).beat()
            }
            return RedisJobSource(
                loop: loop, client: client, waiter: waiter, keys: keys, stage: stage, consumer: name)
        }
    }

    func accept(
        _ subject: String, lane: Lane = .write, organization: String = "demo", payload: String = "{}",
        limit: RateLimit? = nil, kind: JobKind = .identify
    ) async throws -> AcceptResult {
        try await loop.run {
            await sink.accept(
                NewJob(
                    kind: kind, lane: lane, organization: organization, subject: subject,
                    payload: Array(payload.utf8), limit: limit))
        }
    }

    func command(_ arguments: [RedisArgument]) async throws -> RedisValue {
        try await loop.run { try await client.command(arguments) }
    }

    /// Waiting and in-flight entries of a lane over all partitions.
    func length(_ lane: Lane) async throws -> Int64 { try await sum("XLEN") { keys.lane($0, lane) } }
    func dead(_ lane: Lane) async throws -> Int64 { try await sum("XLEN") { keys.dead($0, lane) } }
    func delayed(_ lane: Lane) async throws -> Int64 { try await sum("ZCARD") { keys.due($0, lane) } }

    /// Entries not ended, as the organization's backlog counts them.
    func backlog(_ organization: String = "demo") async throws -> Int64 {
        var sum: Int64 = 0
        for partition in 0..<keys.partitions {
            let value = try await command(["HGET", .text(keys.backlog(partition)), .text(organization)])
            sum += value.text.flatMap { Int64($0) } ?? 0
        }
        return sum
    }

    private func sum(_ verb: String, _ key: (Int) -> String) async throws -> Int64 {
        var sum: Int64 = 0
        for partition in 0..<keys.partitions {
            sum += try await command([.text(verb), .text(key(partition))]).int64 ?? 0
        }
        return sum
    }

    func fetch(_ source: RedisJobSource, atMost count: Int = 100) async throws -> [FetchedJob] {
        try await loop.run { await source.fetch(atMost: count) }
    }

    func settle(_ source: RedisJobSource, _ settlements: [Settlement]) async throws {
        try await loop.run { await source.settle(settlements) }
    }
}
