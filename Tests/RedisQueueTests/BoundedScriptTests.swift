import EventLoop
import Jobs
import Redis
import TestSupport
import Testing

@testable import RedisQueue

/// What a script does may depend on what it is asked for, never on what lies in the queue: numbers that no clock
/// enters, so that a lost COUNT or LIMIT shows on any machine.
@Suite struct BoundedScriptTests {
    /// What one run of a script did.
    private struct Work {
        /// Commands that Redis ran for it.
        let calls: Int64
        /// Entries that it returned, moved or passed by.
        let touched: Int
    }

    private struct Backlog {
        let server: TestRedis
        let bench: QueueBench
        let worker: RedisJobSource
        let size: Int
        var works: [String: Work] = [:]

        /// `size` entries of everything: waiting, held by the dead consumer `gone` for long, held by `w1`, delayed and
        /// due, parked by a pause, dead, and as many names in every hash.
        static func make(_ size: Int) async throws -> Backlog {
            let server = try await TestRedis.start()
            let bench = try await QueueBench.make(partitions: 1, redis: server)
            let keys = bench.keys
            let worker = try await bench.worker("w1")
            let names = [
                keys.lane(0, .write), keys.due(0, .write), keys.later(0, .write), keys.parked(0, .write),
                keys.dead(0, .write), keys.backlog(0), keys.alone(0), keys.redriven(0), keys.changes(0),
                keys.unresolved,
            ]
            _ = try await server.pipeline([
                ["EVAL", .text(fill), .integer(Int64(names.count))] + names.map { .text($0) } + [.integer(Int64(size))]
            ])[0].get()
            let orders = QueueOrders(client: bench.client, keys: keys)
            _ = try await bench.loop.run {
                try await orders.pause(.organization, "paused", owner: "o", reason: "r", milliseconds: nil)
            }
            return Backlog(server: server, bench: bench, worker: worker, size: size)
        }

        private static let fill = """
            local size = tonumber(ARGV[1])
            local function header(n, organization)
                return 'identify|1|' .. n .. '|0|' .. organization .. '|5|0|||'
            end
            redis.call('XGROUP', 'CREATE', KEYS[1], 'workers', '0', 'MKSTREAM')
            for n = 1, 3 * size do redis.call('XADD', KEYS[1], '*', 'h', header(n, 'demo'), 'p', 'x') end
            local held = redis.call('XREADGROUP', 'GROUP', 'workers', 'gone', 'COUNT', size, 'STREAMS', KEYS[1], '>')
            for _, entry in ipairs(held[1][2]) do
                redis.call('XCLAIM', KEYS[1], 'workers', 'gone', 0, entry[1], 'IDLE', 86400000, 'JUSTID')
            end
            redis.call('XREADGROUP', 'GROUP', 'workers', 'w1', 'COUNT', size, 'STREAMS', KEYS[1], '>')
            for n = 1, size do
                redis.call('ZADD', KEYS[2], n, 1000000 + n)
                redis.call('HSET', KEYS[3], 1000000 + n, header(1000000 + n, 'demo') .. '\\n' .. 'x')
                redis.call('XADD', KEYS[4], '*', 'h', header(n, 'paused'), 'p', 'x')
                redis.call('XADD', KEYS[5], (1000 + n) .. '-1', 'h', header(n, 'demo'), 'p', 'x', 'reason', 'r',
                    'text', 't')
                redis.call('HSET', KEYS[6], 'organization' .. n, 1)
                redis.call('HSET', KEYS[7], 9000000 + n, 1)
                redis.call('HSET', KEYS[8], 'write ' .. n, 1)
                redis.call('XADD', KEYS[9], '*', 'action', 'pause', 'name', 'kind:k' .. n, 'owner', 'o',
                    'reason', 'r', 'at', '1', 'until', '')
                redis.call('HSET', KEYS[10], 'bundle' .. n, 1)
            end
            """

        private func calls() async throws -> Int64 {
            let info = try await bench.command(["INFO", "commandstats"]).text ?? ""
            return info.split(whereSeparator: \.isNewline).reduce(0) { sum, line in
                guard line.hasPrefix("cmdstat_"), !line.hasPrefix("cmdstat_info"),
                    let field = line.split(separator: ":").last?.split(separator: ",").first
                else { return sum }
                return sum + (Int64(field.dropFirst("calls=".count)) ?? 0)
            }
        }

        mutating func measure(_ name: String, _ body: () async throws -> Int) async throws {
            let before = try await calls()
            let touched = try await body()
            works[name] = Work(calls: try await calls() - before, touched: touched)
        }

        /// Runs one script of partition 0 as its callers do.
        func run(_ script: RedisScript, _ names: [String], _ arguments: [RedisArgument]) async throws -> RedisValue {
            try await bench.loop.run {
                try await bench.client.evaluate(script, keys: names.map { .text($0) }, arguments: arguments)
            }
        }

        func fetched() async throws -> [FetchedJob] { try await bench.fetch(worker, atMost: QueueScripts.mostEntries) }
    }

    private static let most = Int64(QueueScripts.mostEntries)

    /// Every script once, at the greatest it is ever asked for.
    private func works(_ size: Int) async throws -> [String: Work] {
        var backlog = try await Backlog.make(size)
        try await intakeAndSettle(&backlog)
        try await scans(&backlog)
        try await deadLetters(&backlog)
        try await orders(&backlog)
        await backlog.server.remove()
        return backlog.works
    }

    private func intakeAndSettle(_ backlog: inout Backlog) async throws {
        let bench = backlog.bench
        let worker = backlog.worker
        try await backlog.measure("accept") {
            let results = try await bench.loop.run {
                await withTaskGroup(of: AcceptResult.self) { group in
                    for number in 0..<64 {
                        group.addTask {
                            await bench.sink.accept(
                                NewJob(
                                    kind: .identify, lane: .write, organization: "demo", subject: "u\(number)",
                                    payload: [1]))
                        }
                    }
                    return await group.reduce(into: []) { $0.append($1) }
                }
            }
            return results.count { if case .accepted = $0 { true } else { false } }
        }
        let actions: [(String, @Sendable (FetchedJob) -> Settlement.Action)] = [
            ("done", { _ in .done }), ("retry", { _ in .retry(afterMilliseconds: 3_600_000, attempts: 1) }),
            ("dead", { _ in .dead(reason: "r", text: "t") }),
            ("park", { _ in .park }), ("forward", { .forward(to: .writeLive, payload: $0.payload) }),
        ]
        for (name, action) in actions {
            let live = try await bench.length(.writeLive)
            #expect(live == 0)
            var jobs: [FetchedJob] = []
            try await backlog.measure("fetch before \(name)") { [backlog] in
                jobs = try await backlog.fetched()
                return jobs.count
            }
            try await backlog.measure("settle \(name)") {
                try await bench.settle(worker, jobs.map { Settlement($0, action($0)) })
                return jobs.count
            }
        }
    }

    private func scans(_ backlog: inout Backlog) async throws {
        let keys = backlog.bench.keys
        let bench = backlog.bench
        let worker = backlog.worker
        try await backlog.measure("promote") {
            try await bench.loop.run {
                let before = worker.counters.promoted
                _ = await worker.promoteOnce()
                return Int(worker.counters.promoted - before)
            }
        }
        let group = RedisArgument.text(QueueKeys.group)
        let lane = keys.lane(0, .write)
        try await backlog.measure("reclaim") { [backlog] in
            let answer = try await backlog.run(
                QueueScripts.reclaim, [keys.meta(0), lane], [group, "other", .integer(Self.most), "gone"])
            return (answer.elements?.count ?? 0) - 1
        }
        try await backlog.measure("idle ones (XAUTOCLAIM)") {
            try await bench.loop.run {
                let before = worker.counters.reclaimed
                await worker.reclaimIdle()
                return Int(worker.counters.reclaimed - before)
            }
        }
        try await backlog.measure("refresh") { [backlog] in
            try await backlog.run(QueueScripts.refresh, [lane], [group, "w1", .integer(Self.most), "-"])
                .elements?.count ?? 0
        }
        try await backlog.measure("release") { [backlog] in
            Int(try await backlog.run(QueueScripts.release, [lane], [group, "w1", .integer(Self.most)]).int64 ?? 0)
        }
        try await backlog.measure("reap") { [backlog] in
            Int(try await backlog.run(QueueScripts.reap, [lane], [group, "gone"]).int64 ?? -1)
        }
        try await backlog.measure("unpark, all still paused") { [backlog] in
            let answer = try await backlog.run(
                QueueScripts.unpark, [keys.meta(0), keys.parked(0, .write), lane], [.integer(Self.most), "-", ""])
            // Where it stopped says how far it looked.
            guard let cursor = answer.elements?[2].text, !cursor.isEmpty else { return backlog.size }
            let passed = try await bench.command([
                "XRANGE", .text(keys.parked(0, .write)), "-", .text(String(cursor.dropFirst())),
            ])
            return passed.elements?.count ?? 0
        }
    }

    private func deadLetters(_ backlog: inout Backlog) async throws {
        let keys = backlog.bench.keys
        let bench = backlog.bench
        let streams = DeadLetterStreams(client: bench.client, keys: keys)
        try await backlog.measure("uncopied dead letters") {
            try await bench.loop.run { try await streams.uncopied(0) }.count
        }
        try await backlog.measure("redrive") {
            let letters = (1...100).map {
                DeadLetterStreams.Redrive(
                    entry: "\(1000 + $0)-1",
                    header: JobHeader(
                        kind: .identify, version: 1, stamp: Int64($0), attempts: 0, organization: "demo",
                        enqueuedMilliseconds: 1), payload: [1])
            }
            return try await bench.loop.run { try await streams.redrive(letters, 0, .write) }.count
        }
        var byAge = DeadLetterStreams.Caps()
        byAge.milliseconds = 0
        var byBytes = DeadLetterStreams.Caps()
        byBytes.bytes = 0
        for (name, caps) in [("trim-dead by age", byAge), ("trim-dead by bytes", byBytes)] {
            let trimmed = DeadLetterStreams(client: bench.client, keys: keys, caps: caps)
            try await backlog.measure(name) {
                Int(
                    try await bench.loop.run {
                        try await trimmed.copied(0, .write, through: "9000000-1", nowMilliseconds: 9_000_000)
                    })
            }
        }
    }

    private func orders(_ backlog: inout Backlog) async throws {
        let keys = backlog.bench.keys
        let bench = backlog.bench
        let orders = QueueOrders(client: bench.client, keys: keys)
        try await backlog.measure("pause") {
            _ = try await bench.loop.run {
                try await orders.pause(.kind, "other", owner: "o", reason: "r", milliseconds: nil)
            }
            return 0
        }
        try await backlog.measure("orders") { try await bench.loop.run { try await orders.list() }.count }
        try await backlog.measure("changes") { try await bench.loop.run { try await orders.changes() }.count }
        try await backlog.measure("resume") {
            try await bench.loop.run { _ = try await orders.resume(.organization, "paused", owner: "o") }
            return 0
        }
        try await backlog.measure("unpark, nothing paused") { [backlog] in
            let answer = try await backlog.run(
                QueueScripts.unpark, [keys.meta(0), keys.parked(0, .write), keys.lane(0, .write)],
                [.integer(Self.most), "-", ""])
            return Int(answer.elements?[1].int64 ?? 0)
        }
        try await backlog.measure("seed") {
            try await bench.loop.run { try await QueueSeed(client: bench.client, keys: keys).seed() }
            return 0
        }
        try await backlog.measure("shed") {
            _ = try await bench.loop.run { try await ShedLevel(client: bench.client, keys: keys).update() }
            return 0
        }
        try await backlog.measure("statistics") {
            try await bench.loop.run { try await QueueStatistics(client: bench.client, keys: keys).lanes() }.count
        }
        try await backlog.measure("count-purge") {
            let purge = QueuePurge(client: bench.client, keys: keys)
            return Int(
                try await bench.loop.run {
                    try await purge.count(QueuePurge.Filter(lane: .write)) { $0.looked == 0 }
                }.looked)
        }
        try await backlog.measure("start alone") { [backlog] in
            Int(try await backlog.run(QueueScripts.startAlone, [keys.alone(0)], [.integer(1)]).int64 ?? 0)
        }
        try await backlog.measure("count unresolved") { [backlog] in
            _ = try await backlog.run(QueueScripts.addCounts, [keys.unresolved], ["100", "*", "b", "1"])
            return 0
        }
    }

    /// What one run may touch: what its caller asks for, and for trimming one node of the stream more.
    private static let bounds: [String: Int] = [
        "accept": 64, "promote": 100, "idle ones (XAUTOCLAIM)": 64, "redrive": 100, "uncopied dead letters": 32,
        "trim-dead by age": 1100, "trim-dead by bytes": 1100, "changes": 64,
    ]

    @Test func everyScriptTouchesABoundedNumberOfEntriesWhateverTheBacklog() async throws {
        let small = try await works(2_000)
        let large = try await works(50_000)
        #expect(Set(small.keys) == Set(large.keys))
        for (name, work) in large {
            let bound = Self.bounds[name] ?? QueueScripts.mostEntries
            #expect(work.touched <= bound, "\(name) touched \(work.touched) entries of 50,000")
            let before = try #require(small[name])
            // A client may say PING or so between.
            #expect(
                work.calls <= before.calls + 8, "\(name): \(before.calls) commands at 2,000, \(work.calls) at 50,000")
        }
        // Those that find enough to do do as much as they are asked for: else this proves nothing.
        for name in ["promote", "reclaim", "refresh", "release", "fetch before done", "unpark, nothing paused"] {
            #expect(large[name]?.touched == Self.bounds[name] ?? QueueScripts.mostEntries, "\(name)")
        }
        #expect(large["unpark, all still paused"]?.touched == QueueScripts.mostEntries)
        #expect(large["idle ones (XAUTOCLAIM)"]?.touched == 64)
        // Whole nodes of the stream go, so not exactly as many.
        for name in ["trim-dead by age", "trim-dead by bytes"] { #expect(large[name]?.touched ?? 0 >= 300, "\(name)") }
    }

    /// Reports of job systems whose page of not-rescuable jobs hid all the others.
    @Test func tenThousandExemptJobsAheadDoNotHideAnAbandonedOne() async throws {
        let server = try await TestRedis.start()
        let bench = try await QueueBench.make(partitions: 1, redis: server)
        let lane = RedisArgument.text(bench.keys.lane(0, .write))
        let fill = """
            redis.call('XGROUP', 'CREATE', KEYS[1], 'workers', '0', 'MKSTREAM')
            for n = 1, 10002 do
                redis.call('XADD', KEYS[1], n .. '-1', 'h', 'identify|1|' .. n .. '|0|demo|5|0|||', 'p', 'x')
            end
            redis.call('XREADGROUP', 'GROUP', 'workers', 'busy', 'COUNT', 10001, 'STREAMS', KEYS[1], '>')
            redis.call('XREADGROUP', 'GROUP', 'workers', 'stuck', 'STREAMS', KEYS[1], '>')
            redis.call('XCLAIM', KEYS[1], 'workers', 'stuck', 0, '10002-1', 'IDLE', 60000, 'JUSTID')
            """
        _ = try await bench.command(["EVAL", .text(fill), "1", lane])
        let worker = try await bench.worker("w1")
        // Both seem alive: what `busy` holds is fresh, what `stuck` holds is not.
        let found = try await bench.loop.run {
            var looks = 0
            while worker.counters.reclaimed == 0 && looks < 40 {
                await worker.reclaimIdle()
                looks += 1
            }
            return (looks, worker.counters.reclaimed)
        }
        #expect(found.1 == 1)
        // Each look passes ten times as many as it may take over.
        #expect(found.0 <= 10_002 / 640 + 1)
        let jobs = try await bench.fetch(worker)
        #expect(jobs.map(\.header.stamp) == [10_002])
        await server.remove()
    }

    @Test func manyJobsDueAtOnceComeBackAHundredACall() async throws {
        let bench = try await QueueBench.make(partitions: 1)
        let fill = """
            for n = 1, 1000 do
                redis.call('ZADD', KEYS[1], n, n)
                redis.call('HSET', KEYS[2], n, 'identify|1|' .. n .. '|1|demo|5|0|||' .. '\\n' .. 'x')
            end
            """
        _ = try await bench.command([
            "EVAL", .text(fill), "2", .text(bench.keys.due(0, .write)), .text(bench.keys.later(0, .write)),
        ])
        let worker = try await bench.worker("w1")
        for call in 1...10 {
            _ = try await bench.loop.run { await worker.promoteOnce() }
            // Whoever dies between two calls leaves every job either delayed or waiting.
            #expect(try await bench.length(.write) == Int64(call * 100))
            #expect(try await bench.delayed(.write) == Int64(1000 - call * 100))
        }
        #expect(try await bench.command(["HLEN", .text(bench.keys.later(0, .write))]).int64 == 0)
    }

    @Test func aLiveJobIsDelayedByLessThanOneBatchOfABulkBacklog() async throws {
        let bench = try await QueueBench.make(partitions: 16)
        for partition in 0..<16 {
            let fill = """
                for n = 1, 500 do
                    redis.call('XADD', KEYS[1], '*', 'h', 'identify|1|' .. n .. '|0|demo|5|0|||', 'p', 'x')
                end
                """
            _ = try await bench.command(["EVAL", .text(fill), "1", .text(bench.keys.lane(partition, .write))])
        }
        let worker = try await bench.worker("w1")
        let batch = 64
        for round in 0..<20 {
            // A batch is in the worker's hands when the live job comes.
            let bulk = try await bench.fetch(worker, atMost: batch)
            #expect(!bulk.isEmpty && bulk.allSatisfy { $0.lane == .write })
            _ = try await bench.accept("live_\(round)", lane: .writeLive)
            var ahead = 0
            var found = false
            for _ in 0..<4 where !found {
                let jobs = try await bench.fetch(worker, atMost: batch)
                let index = jobs.firstIndex { $0.lane == .writeLive }
                ahead += index ?? jobs.count
                found = index != nil
                try await bench.settle(worker, jobs.map { Settlement($0, .done) })
            }
            #expect(found && ahead < batch, "\(ahead) bulk jobs were handed out before the live one")
            try await bench.settle(worker, bulk.map { Settlement($0, .done) })
        }
        #expect(try await bench.length(.write) > 0)
    }
}
