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

@Suite struct DeadLetterCopierTests {
    private struct Bench {
        let loop = EventLoop(name: "copier")
        let keys: QueueKeys
        let client: RedisClient
        let postgres: PostgresClient
        let streams: DeadLetterStreams
        let copier: DeadLetterCopier

        /// - Parameter caps: nil keeps nothing in Redis that is copied.
        static func make(
            conninfo: String? = nil, caps: DeadLetterStreams.Caps? = nil
        ) async throws -> Bench {
            let server = try await TestRedis.shared()
            let database = try TestPostgres.shared.get()
            let configuration = PostgresConfiguration(
                conninfo: conninfo ?? database.conninfo, schema: database.schema())
            let bench = Bench(server, configuration, caps)
            try await bench.loop.run {
                _ = await bench.client.waitUntilConnected(milliseconds: 5000)
                if conninfo == nil { try await bench.postgres.migrated() }
            }
            return bench
        }

        private init(
            _ server: TestRedis, _ configuration: PostgresConfiguration, _ wanted: DeadLetterStreams.Caps?
        ) {
            keys = QueueKeys(prefix: server.keyPrefix(), partitions: 2)
            client = RedisClient(loop: loop, address: server.address, configuration: RedisClientConfiguration())
            postgres = PostgresClient(configuration, on: loop)
            var caps = wanted ?? DeadLetterStreams.Caps()
            if wanted == nil {
                caps.bytes = 0
                caps.milliseconds = 0
            }
            streams = DeadLetterStreams(client: client, keys: keys, caps: caps)
            copier = DeadLetterCopier(
                loop: loop, streams: streams, partitions: 2, postgres: postgres,
                log: Log(process: "test", level: .error, time: SystemTime(), sink: MemoryLogSink()))
        }

        func bury(_ count: Int, partition: Int = 0, header: String? = nil, text: [UInt8] = [0x74]) async throws {
            let key = RedisArgument.text(keys.dead(partition, .write))
            try await loop.run {
                for index in 0..<count {
                    _ = try await client.command([
                        "XADD", key, "*", "h", .text(header ?? "identify|1|\(index + 1)|2|demo|5|0|||"), "p", "{}",
                        "reason", "poison", "text", .bytes(text),
                    ])
                }
            }
        }

        func lengths() async throws -> Int64 {
            try await loop.run {
                var sum: Int64 = 0
                for partition in 0..<2 {
                    sum += try await client.command(["XLEN", .text(keys.dead(partition, .write))]).int64 ?? 0
                }
                return sum
            }
        }

        func kept() async throws -> [DeadLetterRecord] {
            try await loop.run {
                try await postgres.withConnection { connection throws(PostgresError) in
                    try await DeadLetters.list(limit: 10_000, connection)
                }
            }
        }

        /// Passes until there is nothing more.
        func copyAll() async throws {
            try await loop.run { while try await copier.copy() {} }
        }
    }

    @Test func lettersAreCopiedInBoundedBatchesAndThenTrimmed() async throws {
        let bench = try await Bench.make()
        try await bench.bury(70)
        try await bench.bury(5, partition: 1)
        let more = try await bench.loop.run { try await bench.copier.copy() }
        #expect(more)
        #expect(try await bench.kept().count == 37)
        try await bench.copyAll()
        let kept = try await bench.kept()
        #expect(kept.count == 75)
        #expect(try await bench.lengths() == 0)
        let letter = try #require(kept.last)
        #expect(letter.kind == "identify" && letter.organization == "demo" && letter.lane == "write")
        #expect(letter.reason == "poison" && letter.error == "t" && letter.payloadBytes == 2)
        let now = SystemTime().wallMicroseconds
        #expect(letter.diedAt <= now && letter.diedAt > now - 60_000_000)
    }

    @Test func aCrashBetweenCopyAndTrimCopiesNothingTwice() async throws {
        let bench = try await Bench.make()
        try await bench.bury(10)
        // The copy is committed, and the process dies before Redis hears of it.
        try await bench.loop.run {
            let letters = try await bench.streams.uncopied(0)
            try await bench.copier.keep(letters)
        }
        #expect(try await bench.kept().count == 10)
        #expect(try await bench.lengths() == 10)
        try await bench.copyAll()
        #expect(try await bench.kept().count == 10)
        #expect(try await bench.lengths() == 0)
    }

    @Test func withoutPostgresLettersStayInRedis() async throws {
        let bench = try await Bench.make(conninfo: "host=/tmp/ratchet-no-postgres dbname=x")
        try await bench.bury(10)
        await #expect(throws: PostgresError.self) {
            _ = try await bench.loop.run { try await bench.copier.copy() }
        }
        await #expect(throws: PostgresError.self) { try await bench.loop.run { try await bench.copier.tidy() } }
        #expect(try await bench.lengths() == 10)
    }

    @Test func whatCanNotBeReadIsCopiedAsItIs() async throws {
        let bench = try await Bench.make()
        try await bench.bury(2, header: "no header", text: [0x61, 0, 0xff, 0x62])
        try await bench.bury(1, header: "id\u{0}|1|3|2|de\u{0}mo|5|0|||")
        try await bench.copyAll()
        let kept = try await bench.kept()
        #expect(kept.count == 3)
        #expect(kept.map(\.organization) == ["", "", ""])
        #expect(kept.map(\.stamp) == [0, 0, 0])
        #expect(kept.last?.error == "a\u{fffd}b" && kept.last?.header == Array("no header".utf8))
    }

    @Test func ofCopiedLettersRedisKeepsAWeekAndABoundedSize() async throws {
        var caps = DeadLetterStreams.Caps()
        #expect(caps.milliseconds == 7 * 86_400_000 && caps.bytes == 64 << 20)
        // An eighth of it for each stream: two partitions of four lanes.
        caps.bytes = 8 * 100_000
        let bench = try await Bench.make(caps: caps)
        let now = SystemTime().wallMilliseconds
        func bury(_ partition: Int, _ entry: String, _ payload: String = "{}") async throws {
            try await bench.loop.run {
                _ = try await bench.client.command([
                    "XADD", .text(bench.keys.dead(partition, .write)), .text(entry), "h",
                    "identify|1|1|2|demo|5|0|||", "p", .text(payload), "reason", "poison", "text", "t",
                ])
            }
        }
        for index in 0..<150 { try await bury(0, "\(now - 8 * 86_400_000)-\(index + 1)") }
        for index in 0..<150 { try await bury(0, "\(now - 6 * 86_400_000)-\(index + 1)") }
        let kilobyte = String(repeating: "x", count: 1000)
        for index in 0..<400 { try await bury(1, "\(now)-\(index + 1)", kilobyte) }
        try await bench.copyAll()
        for _ in 0..<5 { try await bench.loop.run { try await bench.copier.tidy() } }
        func used(_ partition: Int, _ command: RedisArgument...) async throws -> Int64 {
            try await bench.loop.run {
                try await bench.client.command(command + [.text(bench.keys.dead(partition, .write))]).int64 ?? -1
            }
        }
        let young = try await used(0, "XLEN")
        // Redis trims whole nodes of a hundred.
        #expect((150...250).contains(young), "\(young) are left")
        let bytes = try await used(1, "MEMORY", "USAGE")
        #expect(bytes > 0 && bytes <= 100_000, "\(bytes) bytes are left")
        #expect(try await bench.kept().count == 700, "Postgres has them all")
    }

    @Test func aTokenThatNobodyCanExchangeAnyMoreIsErasedHereAndThere() async throws {
        let bench = try await Bench.make(caps: DeadLetterStreams.Caps())
        let now = SystemTime().wallMicroseconds
        let hour: Int64 = 3_600_000_000
        for (stamp, kind) in [
            (now - 25 * hour, "adservices"), (now - 23 * hour, "adservices"), (now - 25 * hour, "identify"),
        ] {
            try await bench.bury(1, header: "\(kind)|1|\(stamp)|2|demo|5|0|||")
        }
        try await bench.copyAll()
        try await bench.loop.run { try await bench.copier.tidy() }
        let kept = try await bench.kept().sorted { $0.id < $1.id }
        #expect(kept.map(\.payloadBytes) == [0, 2, 2])
        let left = try await bench.loop.run {
            try await bench.client.command(["XLEN", .text(bench.keys.dead(0, .write))]).int64
        }
        #expect(left == 2)
    }

    @Test func aMonthIsKeptAndNoMore() async throws {
        let bench = try await Bench.make()
        let now = SystemTime().wallMicroseconds
        try await bench.loop.run {
            try await bench.postgres.withConnection { connection throws(PostgresError) in
                _ = try await DeadLetters.insert(
                    [now - 31 * 86_400_000_000, now - 29 * 86_400_000_000].enumerated().map { index, time in
                        DeadLetterRecord(
                            partition: 0, stamp: Int64(index + 1), organization: "demo", lane: "write",
                            kind: "identify", header: [], payload: [], reason: "r", error: "", diedAt: time)
                    }, connection)
            }
            try await bench.copier.tidy()
        }
        #expect(try await bench.kept().map(\.stamp) == [2])
    }
}

extension PostgresClient {
    fileprivate func migrated() async throws(PostgresError) {
        try await withConnection { connection throws(PostgresError) in
            do throws(StoreError) {
                _ = try await Migrator.migrate(connection)
            } catch {
                throw error.cause ?? PostgresError(.usage, error.message)
            }
        }
    }
}
