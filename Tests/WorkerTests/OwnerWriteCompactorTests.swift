import EventLoop
import Jobs
import Postgres
import Redis
import RedisQueue
import Service
import Store
import TestSupport
import Testing
import Wire

@testable import Writer

/// When a writer compacts owner writes, and what holds it up.
@Suite struct OwnerWriteCompactorTests {
    private static let day: Int64 = 86_400_000_000
    private static let dayMilliseconds: Int64 = 86_400_000

    private struct Bench: Sendable {
        /// Starts at the real time, since Redis notes its own in an order.
        let time = ManualTime(wallMicroseconds: SystemTime().wallMicroseconds)
        let sink = MemoryLogSink()
        let metrics = Metrics()
        let loop: EventLoop
        let client: RedisClient
        let keys: QueueKeys
        let postgres: PostgresClient
        let compactor: OwnerWriteCompactor

        static func make() async throws -> Bench {
            let bench = Bench(try await TestRedis.shared(), try TestPostgres.shared.get())
            try await bench.loop.run {
                _ = await bench.client.waitUntilConnected(milliseconds: 5000)
                let migrated = try await bench.postgres.withConnection {
                    connection async throws(PostgresError) -> Result<Void, any Error> in
                    do { return .success(_ = try await Migrator.migrate(connection)) } catch { return .failure(error) }
                }
                try migrated.get()
            }
            return bench
        }

        private init(_ server: TestRedis, _ database: TestPostgres) {
            loop = EventLoop(name: "compactor", time: time)
            keys = QueueKeys(prefix: server.keyPrefix(), partitions: 2)
            client = RedisClient(loop: loop, address: server.address, configuration: RedisClientConfiguration())
            postgres = PostgresClient(database.configuration(schema: database.schema()), on: loop)
            let log = Log(process: "test", level: .info, time: time, sink: sink)
            let copier = DeadLetterCopier(
                loop: loop, streams: DeadLetterStreams(client: client, keys: keys), partitions: 2,
                postgres: postgres, log: log)
            compactor = OwnerWriteCompactor(
                loop: loop, queue: QueueStatistics(client: client, keys: keys),
                orders: QueueOrders(client: client, keys: keys), copier: copier, postgres: postgres, log: log,
                metrics: WriterMetrics(metrics))
        }

        /// Five writes of one customer for one purchase, a minute apart; three of them may go.
        func write(_ purchase: String, daysAgo: Int64) async throws {
            let first = time.wallMicroseconds - daysAgo * OwnerWriteCompactorTests.day
            let writes = (0..<5).map { index in
                StampedWrite(
                    organization: "demo", stamp: first + Int64(index) * 60_000_000,
                    content: .attribute(
                        AttributeWrite(
                            appUserID: "u", bundleID: "com.example.app", store: .appStore,
                            originalTransactionID: purchase, productID: nil, evidence: .none,
                            proof: WriteProof(attested: false))))
            }
            try await loop.run {
                try await postgres.withConnection { connection throws(PostgresError) in
                    _ = try await SDKWrites.apply(writes, connection)
                }
            }
        }

        func work() async throws { _ = try await loop.run { try await compactor.work() } }

        func rows() async throws -> Int64 {
            try await loop.run {
                try await postgres.withConnection { connection throws(PostgresError) in
                    try await connection.query("SELECT count(*) AS n FROM purchase_owner_writes").first?.int64("n")
                        ?? -1
                }
            }
        }
    }

    @Test func aPassADayTakesWhatHasBecomeOldEnough() async throws {
        let bench = try await Bench.make()
        try await bench.write("T1", daysAgo: 31)
        try await bench.write("T2", daysAgo: 29)
        try await bench.work()
        #expect(try await bench.rows() == 7)
        #expect(bench.metrics.exposition().contains("ratchet_owner_writes_compacted_total 3\n"))
        let line = try #require(bench.sink.lines.last { $0.contains("owner writes compacted") })
        #expect(line.contains("\"removed\":3") && line.contains("\"looked\":10"))
        bench.time.advance(milliseconds: Self.dayMilliseconds - 1)
        try await bench.work()
        #expect(try await bench.rows() == 7)
        bench.time.advance(milliseconds: Self.dayMilliseconds)
        try await bench.work()
        #expect(try await bench.rows() == 4)
    }

    @Test(arguments: [false, true]) func whatIsYoungerThanADeadLetterStays(isCopied: Bool) async throws {
        let bench = try await Bench.make()
        try await bench.write("T1", daysAgo: 60)
        try await bench.write("T2", daysAgo: 40)
        let stamp = bench.time.wallMicroseconds - 50 * Self.day
        try await bench.loop.run {
            _ = try await bench.client.command([
                "XADD", .text(bench.keys.dead(1, .write)), "*", "h", .text("attribute|1|\(stamp)|2|demo|5|0|||"), "p",
                "{}", "reason", "poison", "text", "t",
            ])
            if isCopied { _ = try await bench.compactor.copier.copy() }
        }
        try await bench.work()
        #expect(try await bench.rows() == 7)
    }

    @Test func afterALongPausePassesWaitForADay() async throws {
        let bench = try await Bench.make()
        try await bench.write("T1", daysAgo: 31)
        let orders = QueueOrders(client: bench.client, keys: bench.keys)
        try await bench.loop.run {
            _ = try await orders.pause(.organization, "demo", owner: "ops", reason: "r", milliseconds: nil)
        }
        bench.time.advance(milliseconds: Self.dayMilliseconds * 2)
        try await bench.work()
        #expect(try await bench.rows() == 5)
        _ = try await bench.loop.run { try await orders.resume(.organization, "demo", owner: "ops") }
        bench.time.advance(milliseconds: Self.dayMilliseconds - 1)
        try await bench.work()
        #expect(try await bench.rows() == 5)
        bench.time.advance(milliseconds: 1)
        try await bench.work()
        #expect(try await bench.rows() == 2)
    }

    @Test func jobsThatAPauseLeftBehindHoldItUp() async throws {
        let bench = try await Bench.make()
        try await bench.write("T1", daysAgo: 31)
        try await bench.loop.run {
            _ = try await bench.client.command([
                "XADD", .text(bench.keys.parked(1, .write)), "*", "h", "attribute|1|1|2|demo|5|0|||", "p", "{}",
            ])
        }
        try await bench.work()
        #expect(try await bench.rows() == 5)
        // A backlog of more than a day.
        let old = bench.time.wallMilliseconds - Self.dayMilliseconds - 1
        try await bench.loop.run {
            _ = try await bench.client.command(["DEL", .text(bench.keys.parked(1, .write))])
            _ = try await bench.client.command([
                "XADD", .text(bench.keys.lane(1, .write)), .text("\(old)-1"), "h", "attribute|1|1|2|demo|5|0|||",
                "p", "{}",
            ])
        }
        bench.time.advance(milliseconds: Self.dayMilliseconds)
        try await bench.work()
        #expect(try await bench.rows() == 5)
    }
}
