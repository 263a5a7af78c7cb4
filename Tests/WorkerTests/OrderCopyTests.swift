import EventLoop
import Jobs
import Postgres
import Redis
import RedisQueue
import Service
import Store
import TestSupport
import Testing

@testable import Writer

/// What a writer does for the orders to the queue: it copies them to Postgres, and gives them back to a wiped Redis.
@Suite struct OrderCopyTests {
    private struct Bench: Sendable {
        let redis: TestRedis
        let database: TestPostgres
        let loop: EventLoop
        let client: RedisClient
        let keys: QueueKeys
        let postgres: PostgresClient
        let schema: String

        static func make(_ database: TestPostgres) async throws -> Bench {
            let redis = try await TestRedis.start(TestRedis.Options(appendOnly: true, appendFsync: "always"))
            let loop = EventLoop(name: "order-test")
            let schema = database.schema()
            let address = redis.address
            let (client, postgres) = try await loop.run {
                let client = RedisClient(loop: loop, address: address, configuration: RedisClientConfiguration())
                _ = await client.waitUntilConnected(milliseconds: 5000)
                let postgres = PostgresClient(database.configuration(schema: schema), on: loop)
                let migrated = try await postgres.withConnection {
                    connection async throws(PostgresError) -> Result<Void, any Error> in
                    do { return .success(_ = try await Migrator.migrate(connection)) } catch { return .failure(error) }
                }
                try migrated.get()
                return (client, postgres)
            }
            return Bench(
                redis: redis, database: database, loop: loop, client: client,
                keys: QueueKeys(prefix: "o:", partitions: 2), postgres: postgres, schema: schema)
        }

        var orders: QueueOrders { QueueOrders(client: client, keys: keys) }
        var seed: QueueSeed { QueueSeed(client: client, keys: keys) }

        func onPostgres<Value: Sendable>(
            _ body: @escaping @Sendable (PostgresConnection) async throws(PostgresError) -> Value
        ) async throws -> Value {
            try await loop.run {
                try await postgres.withConnection { connection throws(PostgresError) in try await body(connection) }
            }
        }

        /// Runs as many writers' publishers until `done`, half a minute at most.
        func publishing(_ count: Int = 1, until done: @escaping @Sendable () async throws -> Bool) async throws {
            let publishers = (0..<count).map { _ in
                DirectoryPublisher(
                    loop: loop, client: client, keys: keys, postgres: postgres,
                    log: Log(process: "test", level: .error, time: loop.time, sink: MemoryLogSink()))
            }
            let tasks = publishers.map { publisher in loop.spawn { await publisher.runUntilCancelled() } }
            var isDone = false
            for _ in 0..<600 where !isDone {
                isDone = (try? await loop.run { try await done() }) ?? false
                if !isDone { try await loop.run { [loop] in await loop.sleep(milliseconds: 50) } }
            }
            #expect(isDone)
            for task in tasks {
                task.cancel()
                await task.value
            }
        }
    }

    @Test func ordersOutliveAWipeOfRedisAndARestart() async throws {
        let bench = try await Bench.make(try TestPostgres.shared.get())
        try await bench.publishing { await bench.seed.isSeeded() == true }
        let given = try await bench.loop.run {
            [
                try await bench.orders.pause(.kind, "identify", owner: "ops", reason: "r", milliseconds: 3_600_000),
                try await bench.orders.pause(.lane, "write", owner: "ops", reason: "r", milliseconds: nil),
            ]
        }
        try await bench.redis.restart()
        try await bench.publishing(2) { try await bench.orders.changes().isEmpty }
        #expect(try await bench.loop.run { try await bench.orders.list() } == given)
        try await bench.redis.command(["FLUSHALL"])
        try await bench.redis.command(["SCRIPT", "FLUSH"])
        try await bench.publishing(2) { await bench.seed.isSeeded() == true }
        #expect(try await bench.loop.run { try await bench.orders.list() } == given)
        // What is lifted stays lifted over the next wipe.
        _ = try await bench.loop.run { try await bench.orders.resume(.lane, "write", owner: "ops") }
        try await bench.publishing { try await bench.orders.changes().isEmpty }
        try await bench.redis.command(["FLUSHALL"])
        // Lifted while nobody knew of it any more.
        _ = try await bench.loop.run { try await bench.orders.resume(.kind, "identify", owner: "ops") }
        try await bench.publishing { await bench.seed.isSeeded() == true }
        #expect(try await bench.loop.run { try await bench.orders.list() }.isEmpty)
        let audit = try await bench.onPostgres { connection throws(PostgresError) in
            try await AuditLog.list(organization: nil, connection)
        }
        #expect(audit.map(\.action) == ["queue.resume", "queue.resume", "queue.pause", "queue.pause"])
        await bench.redis.remove()
    }

    @Test func whatWasOrderedWhilePostgresWasDownIsCopiedWhenItIsBack() async throws {
        let bench = try await Bench.make(try TestPostgres())
        try await bench.publishing { await bench.seed.isSeeded() == true }
        try bench.database.stop()
        _ = try await bench.loop.run {
            try await bench.orders.pause(.lane, "write", owner: "ops", reason: "it is down", milliseconds: nil)
        }
        #expect(try await bench.loop.run { try await bench.orders.changes() }.count == 1)
        try bench.database.start()
        try await bench.publishing { try await bench.orders.changes().isEmpty }
        let copied = try await bench.onPostgres { connection throws(PostgresError) in
            try await LaneOrders.list(nowMicroseconds: 0, connection)
        }
        #expect(copied.map(\.reason) == ["it is down"])
        try await bench.redis.command(["FLUSHALL"])
        try await bench.publishing { await bench.seed.isSeeded() == true }
        #expect(try await bench.loop.run { try await bench.orders.list() }.map(\.name) == ["lane:write"])
        await bench.redis.remove()
    }
}
