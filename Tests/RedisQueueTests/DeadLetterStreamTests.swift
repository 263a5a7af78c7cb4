import EventLoop
import Jobs
import Redis
import RedisQueue
import TestSupport
import Testing

@Suite(.onEachRedis) struct DeadLetterStreamTests {
    private let organization = "demo"

    private func header(_ stamp: Int64, attempts: Int = 7) -> JobHeader {
        JobHeader(
            kind: .identify, version: 1, stamp: stamp, attempts: attempts, organization: organization,
            enqueuedMilliseconds: 1)
    }

    private func streams(
        _ bench: QueueBench, bytes: Int64 = 64 << 20, milliseconds: Int64 = 86_400_000
    ) -> DeadLetterStreams {
        var caps = DeadLetterStreams.Caps()
        caps.bytes = bytes
        caps.milliseconds = milliseconds
        return DeadLetterStreams(client: bench.client, keys: bench.keys, caps: caps)
    }

    /// Letters with the ids `1000-1`, `1001-1`…
    private func bury(_ bench: QueueBench, _ count: Int, payloadBytes: Int = 10) async throws {
        let key = bench.keys.dead(0, .write)
        let payload = String(repeating: "x", count: payloadBytes)
        let headers = (0..<count).map { header(Int64($0 + 1)).encoded }
        let results = try await bench.loop.run {
            await bench.client.pipeline(
                headers.indices.map {
                    [
                        "XADD", .text(key), .text("\(1000 + $0)-1"), "h", .text(headers[$0]), "p", .text(payload),
                        "reason", "poison", "text", "t",
                    ]
                })
        }
        for result in results { _ = try result.get() }
    }

    private func trim(
        _ bench: QueueBench, _ streams: DeadLetterStreams, through entry: String?, now: Int64
    ) async throws -> Int64 {
        try await bench.loop.run {
            try await streams.copied(0, .write, through: entry, nowMilliseconds: now)
        }
    }

    private func entries(_ bench: QueueBench) async throws -> [String] {
        let range = try await bench.command(["XRANGE", .text(bench.keys.dead(0, .write)), "-", "+"])
        return range.elements?.compactMap { $0.elements?.first?.text } ?? []
    }

    @Test func nothingIsTrimmedBeforeItIsCopied() async throws {
        let bench = try await QueueBench.make()
        try await bury(bench, 300)
        let greedy = streams(bench, bytes: 0, milliseconds: 0)
        #expect(try await trim(bench, greedy, through: nil, now: 9_000_000) == 0)
        #expect(try await entries(bench).count == 300)
        #expect(try await trim(bench, greedy, through: "1041-1", now: 9_000_000) == 42)
        #expect(try await entries(bench).first == "1042-1")
        // A slower writer that copied less tells so late.
        #expect(try await trim(bench, greedy, through: "1010-1", now: 9_000_000) == 0)
        #expect(try await bench.command(["HGET", .text(bench.keys.copied(0)), "write"]).text == "1041-1")
        let next = try await bench.loop.run { try await greedy.uncopied(0) }
        #expect(next.first?.entry == "1042-1" && next.count == 32)
        #expect(next.first?.payload == Array("xxxxxxxxxx".utf8) && next.first?.reason == Array("poison".utf8))
    }

    @Test func ageTrimsTheOldOnesAlone() async throws {
        let bench = try await QueueBench.make()
        try await bury(bench, 300)
        let aged = streams(bench, milliseconds: 1000)
        // 1100 - 1000 is older than all; 2100 - 1000 leaves what died at 1100 and later.
        #expect(try await trim(bench, aged, through: "1299-1", now: 1100) == 0)
        #expect(try await trim(bench, aged, through: nil, now: 2100) == 100)
        #expect(try await entries(bench).first == "1100-1")
    }

    @Test func bytesTrimTheOldestInBoundedSteps() async throws {
        let bench = try await QueueBench.make()
        try await bury(bench, 2000, payloadBytes: 1000)
        // Two partitions of four lanes: an eighth each.
        let share: Int64 = 200_000
        let narrow = streams(bench, bytes: share * 8)
        func used() async throws -> Int64 {
            try await bench.command(["MEMORY", "USAGE", .text(bench.keys.dead(0, .write))]).int64 ?? -1
        }
        var calls = 0
        var gone: Int64 = 0
        var went: Int64 = 0
        repeat {
            went = try await trim(bench, narrow, through: "2999-1", now: 1)
            #expect(went <= 1100, "one call trimmed \(went)")
            gone += went
            calls += 1
        } while went > 0 && calls < 50
        #expect(calls > 2)
        #expect(try await used() <= share)
        // No more than it takes: a hundred entries a step.
        #expect(gone < 1950)
        #expect(try await entries(bench).last == "2999-1")
        #expect(try await entries(bench).first == "\(1000 + gone)-1")
    }

    @Test func aLetterPutBackRunsAsNewAndOnlyOnce() async throws {
        let bench = try await QueueBench.make()
        try await bury(bench, 3)
        let dead = streams(bench)
        var fresh = header(2, attempts: 0)
        fresh.enqueuedMilliseconds = 5
        let going = [DeadLetterStreams.Redrive(entry: "1001-1", header: fresh, payload: Array("new".utf8))]
        let first = try await bench.loop.run { try await dead.redrive(going, 0, .write) }
        // In doubt it is called again.
        let second = try await bench.loop.run { try await dead.redrive(going, 0, .write) }
        #expect(first == [true] && second == [false])
        #expect(try await entries(bench) == ["1000-1", "1002-1"])
        #expect(try await bench.length(.write) == 1)
        #expect(try await bench.backlog() == 1)
        let worker = try await bench.worker("w1")
        let job = try #require(try await bench.fetch(worker).first)
        #expect(job.header == fresh && job.payload == Array("new".utf8))
        try await bench.settle(worker, [Settlement(job, .done)])
        #expect(try await bench.backlog() == 0)
        // The note outlives the letter unless Postgres is told.
        let notes = bench.keys.redriven(0)
        #expect(try await bench.command(["PTTL", .text(notes)]).int64 ?? 0 > 30 * 86_400_000)
        try await bench.loop.run { try await dead.forgetRedriven(["1001-1"], 0, .write) }
        #expect(try await bench.command(["EXISTS", .text(notes)]).int64 == 0)
    }

    @Test func aTrimmedLetterIsPutBackAllTheSame() async throws {
        let bench = try await QueueBench.make()
        let dead = streams(bench)
        let letters = (0..<250).map {
            DeadLetterStreams.Redrive(
                entry: "\($0)-1", header: header(Int64($0 + 1), attempts: 0),
                payload: [UInt8](repeating: 0x78, count: 20_000))
        }
        let added = try await bench.loop.run { try await dead.redrive(letters, 0, .write) }
        #expect(added == Array(repeating: true, count: 250))
        #expect(try await bench.length(.write) == 250)
    }

    @Test func anUnseededRedisTakesNothingBack() async throws {
        let bench = try await QueueBench.make(seeded: false)
        let dead = streams(bench)
        let letter = DeadLetterStreams.Redrive(entry: "1-1", header: header(1), payload: [])
        await #expect(throws: RedisError.self) {
            _ = try await bench.loop.run { try await dead.redrive([letter], 0, .write) }
        }
        #expect(try await bench.length(.write) == 0)
    }

    private func find(_ bench: QueueBench, _ partition: Int, _ stamp: Int64) async throws -> JobSearch.Finding {
        try await bench.loop.run {
            try await JobSearch(client: bench.client, keys: bench.keys).find(partition, stamp: stamp)
        }
    }

    private func kind(_ finding: JobSearch.Finding) -> JobSearch.Place.Kind? {
        if case .found(let place) = finding { place.kind } else { nil }
    }

    @Test func aJobIsFoundWhereverItIs() async throws {
        let bench = try await QueueBench.make(partitions: 1)
        #expect(try await find(bench, 0, 1) == .absent)
        guard case .accepted(let stamp) = try await bench.accept("u") else {
            Issue.record("not accepted")
            return
        }
        #expect(kind(try await find(bench, 0, stamp)) == .waiting)
        #expect(try await find(bench, 0, stamp + 60_000_000) == .neverAccepted)
        let worker = try await bench.worker("w1")
        let job = try #require(try await bench.fetch(worker).first)
        guard case .found(let held) = try await find(bench, 0, stamp) else {
            Issue.record("not found")
            return
        }
        #expect(held.kind == .pending && held.consumer == "w1" && held.deliveries == 1)
        try await bench.settle(worker, [Settlement(job, .retry(afterMilliseconds: 3_600_000, attempts: 3))])
        guard case .found(let due) = try await find(bench, 0, stamp) else {
            Issue.record("not found")
            return
        }
        #expect(due.kind == .due && due.header?.attempts == 3 && (due.dueMilliseconds ?? 0) > stamp / 1000)
        let later = try await bench.command(["HGET", .text(bench.keys.later(0, .write)), .integer(stamp)]).text
        #expect(later != nil)
        _ = try await bench.command(["ZREM", .text(bench.keys.due(0, .write)), .integer(stamp)])
        #expect(try await find(bench, 0, stamp) == .absent)
    }

    @Test func manyCopiedLettersDoNotHideThatAJobIsGone() async throws {
        let bench = try await QueueBench.make(partitions: 1)
        try await bury(bench, 5000)
        #expect(try await find(bench, 0, 6_000_000) == .unknown(searched: 4096))
        _ = try await trim(bench, streams(bench), through: "5999-1", now: 1)
        #expect(try await find(bench, 0, 6_000_000) == .absent)
    }

    @Test func aJobFarFromItsStampIsFoundAmongManyAndNotBeyondTheBound() async throws {
        let bench = try await QueueBench.make(partitions: 1)
        // Entries of the year 1970: their times say nothing of their stamps.
        let key = bench.keys.parked(0, .verify)
        let headers = (1...5000).map { header(Int64($0) * 1_000_000_000).encoded }
        let results = try await bench.loop.run {
            await bench.client.pipeline(
                headers.indices.map { ["XADD", .text(key), .text("\($0 + 1)-1"), "h", .text(headers[$0]), "p", "{}"] })
        }
        for result in results { _ = try result.get() }
        #expect(kind(try await find(bench, 0, 4000 * 1_000_000_000)) == .parked)
        #expect(try await find(bench, 0, 4999 * 1_000_000_000) == .unknown(searched: 4096))
    }
}
