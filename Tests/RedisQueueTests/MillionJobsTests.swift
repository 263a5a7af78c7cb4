import EventLoop
import Foundation
import Jobs
import Redis
import Synchronization
import TestSupport
import Testing

@testable import RedisQueue

/// A backlog of a million jobs, measured and printed: `make bench-queue`. Nothing is asserted of times.
@Suite(.enabled(if: ProcessInfo.processInfo.environment["RATCHET_BENCH_JOBS"] != nil), .serialized)
struct MillionJobsTests {
    private static let jobs = Int(ProcessInfo.processInfo.environment["RATCHET_BENCH_JOBS"] ?? "") ?? 1_000_000
    private static let payloadBytes = 400
    /// An identify with the most that its body may hold.
    private static let largePayloadBytes = 24_000

    private static func payload(_ number: Int, _ bytes: Int = payloadBytes) -> [UInt8] {
        let head = #"{"appUserId":"user_\#(number)","bundleId":"com.example.app","locale":""#
        return Array(head.utf8) + Array(repeating: UInt8(ascii: "x"), count: bytes - head.utf8.count - 2)
            + Array("\"}".utf8)
    }

    private struct Bench {
        let redis: TestRedis
        let queue: QueueBench

        func load(
            _ count: Int, lane: Lane = .write, bytes: Int = payloadBytes, kind: JobKind = .identify,
            organization: String = "demo"
        ) async throws {
            let queue = queue
            let chunk = 8192
            for start in stride(from: 0, to: count, by: chunk) {
                try await queue.loop.run {
                    await withTaskGroup(of: Void.self) { group in
                        for number in start..<min(start + chunk, count) {
                            group.addTask {
                                let result = await queue.sink.accept(
                                    NewJob(
                                        kind: kind, lane: lane, organization: organization, subject: "user_\(number)",
                                        payload: MillionJobsTests.payload(number, bytes)))
                                guard case .accepted = result else { fatalError("not accepted: \(result)") }
                            }
                        }
                    }
                }
            }
        }

        /// 2,000 delayed, parked and dead jobs in each partition: what lies beside a backlog on a bad day.
        func addOthers() async throws {
            let fill = """
                for n = 1, 2000 do
                    local header = 'identify|1|' .. n .. '|1|demo|5|0|||'
                    redis.call('ZADD', KEYS[1], 9000000000000 + n, n)
                    redis.call('HSET', KEYS[2], n, header .. '\\n' .. ARGV[1])
                    redis.call('XADD', KEYS[3], '*', 'h', header, 'p', ARGV[1])
                    redis.call('XADD', KEYS[4], '*', 'h', header, 'p', ARGV[1], 'reason', 'data_refused', 'text', 't')
                end
                """
            let payload = RedisArgument.bytes(MillionJobsTests.payload(0))
            for partition in 0..<queue.keys.partitions {
                let keys = queue.keys
                _ = try await redis.command([
                    "EVAL", .text(fill), "4", .text(keys.due(partition, .write)), .text(keys.later(partition, .write)),
                    .text(keys.parked(partition, .write)), .text(keys.dead(partition, .write)), payload,
                ])
            }
        }

        func usedMemory() async throws -> Int64 {
            let info = try await redis.command(["INFO", "memory"]).text ?? ""
            let line = info.split(whereSeparator: \.isNewline).first { $0.hasPrefix("used_memory:") }
            return line.flatMap { Int64($0.dropFirst("used_memory:".count)) } ?? 0
        }

        /// Fetches until so many are in hand.
        func take(_ worker: RedisJobSource, _ count: Int) async throws -> [FetchedJob] {
            var jobs: [FetchedJob] = []
            while jobs.count < count { jobs += try await queue.fetch(worker, atMost: min(4096, count - jobs.count)) }
            return jobs
        }
    }

    private func start() async throws -> Bench {
        let redis = try await TestRedis.start(
            TestRedis.Options(
                appendOnly: true, appendFsync: "always", maxMemory: "4gb",
                arguments: [
                    "--stream-node-max-bytes", "4096", "--stream-node-max-entries", "100",
                    "--auto-aof-rewrite-percentage", "0",
                ]))
        var configuration = RedisJobSink.Configuration()
        configuration.mostWaiting = 100_000
        configuration.timeoutMilliseconds = 60_000
        return Bench(
            redis: redis, queue: try await QueueBench.make(partitions: 16, redis: redis, configuration: configuration))
    }

    @Test(.timeLimit(.minutes(20))) func aMillionJobsWait() async throws {
        let bench = try await start()
        let began = ContinuousClock.now
        let empty = try await bench.usedMemory()
        try await bench.load(Self.jobs)
        print("bench: \(Self.jobs) identify jobs accepted in \(ContinuousClock.now - began)")
        let waiting = try await bench.usedMemory()
        let each = Double(waiting - empty) / Double(Self.jobs)
        print(
            "bench: \(Int(each)) B of memory a waiting job of \(Self.payloadBytes) B:"
                + " \((each / Double(Self.payloadBytes) * 100).rounded() / 100) x its payload")

        try await bench.addOthers()
        try await measureStatistics(bench)
        try await measureScripts(bench)
        await bench.redis.remove()
    }

    /// Everything that scripts do, at its greatest, with the backlog there.
    private func measureScripts(_ bench: Bench) async throws {
        let queue = bench.queue
        let worker = try await queue.worker("measured")
        try await queue.loop.run { for _ in 0..<3 { _ = await worker.promoteOnce() } }
        try await bench.redis.command(["CONFIG", "SET", "slowlog-log-slower-than", "0"])
        try await bench.redis.command(["CONFIG", "SET", "slowlog-max-len", "200000"])
        try await bench.redis.command(["SLOWLOG", "RESET"])
        let slowest = Slowest()

        // Intake at its fullest, small and large.
        try await bench.load(20_000)
        try await bench.load(4_000, bytes: Self.largePayloadBytes)

        try await slowest.gather(bench)
        // Every way to settle, a full batch of each.
        let before = try await bench.usedMemory()
        let held = try await bench.take(worker, 65_536)
        let pending = Double(try await bench.usedMemory() - before) / Double(held.count)
        print("bench: \(Int(pending)) B more of memory a job in a worker's hands")
        func settle(_ count: Int, _ from: Int, _ action: (FetchedJob) -> Settlement.Action) async throws {
            try await queue.settle(worker, held[from..<(from + count)].map { Settlement($0, action($0)) })
        }
        try await settle(16_384, 0) { _ in .done }
        try await settle(16_384, 16_384) { _ in .retry(afterMilliseconds: 1, attempts: 1) }
        try await settle(16_384, 32_768) { _ in .dead(reason: "data_refused", text: String(repeating: "e", count: 1024))
        }
        try await settle(16_384, 49_152) { .forward(to: .write, payload: $0.payload) }
        try await queue.loop.run { while worker.counters.promoted < 16_384 { _ = await worker.promoteOnce() } }

        try await slowest.gather(bench)
        // Large ones through hands, and all that a dead worker held.
        try await bench.load(4_000, lane: .writeLive, bytes: Self.largePayloadBytes)
        let large = try await bench.take(worker, 4_000)
        try await queue.settle(worker, large.map { Settlement($0, .retry(afterMilliseconds: 60_000, attempts: 1)) })
        let dead = try await queue.worker("dead", alive: false)
        _ = try await bench.take(dead, 8_192)
        let stopping = try await queue.worker("stopping")
        _ = try await bench.take(stopping, 8_192)
        try await queue.loop.run {
            await worker.refreshHeld()
            await stopping.release()
            for _ in 0..<20 { await worker.reclaimOnce() }
        }
        let taken = try await bench.take(worker, 8_192)
        try await queue.settle(worker, taken.map { Settlement($0, .done) })

        try await slowest.gather(bench)
        // Pausing: jobs are parked and come back.
        let orders = QueueOrders(client: queue.client, keys: queue.keys)
        try await bench.load(20_000, lane: .verify, organization: "paused")
        try await queue.loop.run {
            _ = try await orders.pause(
                .organization, "paused", owner: "bench", reason: "bench", milliseconds: nil)
        }
        let verifier = try await queue.worker("verifier", stage: .verify)
        try await queue.loop.run {
            while verifier.counters.parked < 20_000 { _ = await verifier.fetch(atMost: 4096) }
            await verifier.unparkOnce()
            _ = try await orders.list()
            _ = try await orders.resume(.organization, "paused", owner: "bench")
            await verifier.unparkOnce()
        }

        try await slowest.gather(bench)
        // Dead letters: copied, put back, trimmed.
        let streams = DeadLetterStreams(client: queue.client, keys: queue.keys)
        let keys = queue.keys
        try await queue.loop.run {
            for partition in 0..<keys.partitions {
                var last: String?
                for _ in 0..<8 {
                    let letters = try await streams.uncopied(partition)
                    last = letters.last { $0.lane == .write }?.entry ?? last
                    let redrives = letters.filter { $0.lane == .write }.compactMap { letter in
                        JobHeader(encoded: letter.header).map {
                            DeadLetterStreams.Redrive(entry: letter.entry, header: $0, payload: letter.payload)
                        }
                    }
                    _ = try await streams.redrive(redrives, partition, .write)
                    if let last {
                        try await streams.copied(partition, .write, through: last, nowMilliseconds: .max / 2)
                    }
                }
            }
            try await QueueSeed(client: queue.client, keys: queue.keys).seed()
            _ = try await ShedLevel(client: queue.client, keys: queue.keys).load()
        }
        try await slowest.gather(bench)
        await slowest.show()
    }

    private static let names: [String: String] = Dictionary(
        uniqueKeysWithValues: [
            QueueScripts.accept, QueueScripts.fetch, QueueScripts.settle, QueueScripts.promote, QueueScripts.reclaim,
            QueueScripts.refresh, QueueScripts.release, QueueScripts.reap, QueueScripts.unpark, QueueScripts.order,
            QueueScripts.resume, QueueScripts.orders, QueueScripts.redrive, QueueScripts.trimDead, QueueScripts.seed,
            QueueScripts.shed, QueueScripts.purge, QueueScripts.live, QueueScripts.limit,
        ].map { ($0.sha1, $0.name) })

    /// The runs of every script, gathered from Redis' slow log, which would not hold all of them at once.
    private actor Slowest {
        private var rows: [String: (count: Int, total: Int64, most: Int64)] = [:]

        func gather(_ bench: Bench) async throws {
            let entries = try await bench.redis.command(["SLOWLOG", "GET", "-1"]).elements ?? []
            try await bench.redis.command(["SLOWLOG", "RESET"])
            for entry in entries {
                guard let parts = entry.elements, parts.count >= 4, let micros = parts[2].int64,
                    let command = parts[3].elements, command.count > 1, command[0].text == "EVALSHA",
                    let name = command[1].text.flatMap({ MillionJobsTests.names[$0] })
                else { continue }
                let known = rows[name] ?? (0, 0, 0)
                rows[name] = (known.count + 1, known.total + micros, max(known.most, micros))
            }
        }

        func show() {
            print("| script | runs | mean, ms | slowest, ms |\n| --- | --: | --: | --: |")
            for (name, row) in rows.sorted(by: { $0.value.most > $1.value.most }) {
                let mean = Double(row.total) / Double(row.count) / 1000
                print(
                    "| \(name) | \(row.count) | \(String(format: "%.3f", mean)) |"
                        + " \(String(format: "%.2f", Double(row.most) / 1000)) |")
            }
        }
    }

    /// What `ratchet queues` does, and the program itself.
    private func measureStatistics(_ bench: Bench) async throws {
        let queue = bench.queue
        var seconds: [Double] = []
        for _ in 0..<7 {
            let run = ContinuousClock.now
            let output = try await CommandRun.of(
                RatchetProcess.binaries().appendingPathComponent("ratchet").path, ["queues"],
                [
                    "RATCHET_REDIS_URL": bench.redis.url, "RATCHET_KEY_PREFIX": queue.keys.prefix,
                    "RATCHET_PARTITIONS": "16", "RATCHET_MODE": "development",
                ])
            #expect(output.code == 0, "\(output.errors)")
            let duration = ContinuousClock.now - run
            seconds.append(Double(duration.components.attoseconds) / 1e18 + Double(duration.components.seconds))
            if seconds.count == 1 { print(output.output) }
        }
        let sorted = seconds.sorted()
        print(
            "bench: ratchet queues took \(String(format: "%.3f", sorted[3])) s"
                + " (\(String(format: "%.3f", sorted[0])) to \(String(format: "%.3f", sorted[6])))")
    }

    @Test(.timeLimit(.minutes(10))) func aLiveJobPasses200000BulkJobs() async throws {
        let bench = try await start()
        try await bench.load(200_000)
        let queue = bench.queue
        let worker = try await queue.worker("worker")
        let loop = queue.loop
        let live = 200
        let arrived = Arrivals()
        let latencies = try await loop.run {
            // A worker that does nothing with its jobs: what is left is the queue's own.
            let working = loop.spawn {
                while !Task.isCancelled {
                    let jobs = await worker.fetch(atMost: 1024)
                    for job in jobs where job.lane == .writeLive { arrived.add(loop.time.monotonicNanoseconds) }
                    await worker.settle(jobs.map { Settlement($0, .done) })
                }
            }
            var latencies: [Int64] = []
            for number in 0..<live {
                let sent = loop.time.monotonicNanoseconds
                _ = await queue.sink.accept(
                    NewJob(
                        kind: .echo, lane: .writeLive, organization: "demo", subject: "live_\(number)", payload: [1]))
                while arrived.times.count <= number { await loop.sleep(milliseconds: 1) }
                latencies.append(arrived.times[number] - sent)
            }
            working.cancel()
            return latencies
        }
        let left = try await queue.length(.write)
        let sorted = latencies.sorted()
        print(
            "bench: \(live) live jobs beside \(left) to 200000 bulk ones: fetched after"
                + " \(sorted[live / 2] / 1000) us (median), \(sorted[live * 99 / 100] / 1000) us (99 %),"
                + " \(sorted[live - 1] / 1000) us (slowest)")
        await bench.redis.remove()
    }

    private final class Arrivals: Sendable {
        private let state = Mutex<[Int64]>([])
        var times: [Int64] { state.withLock { $0 } }
        func add(_ time: Int64) { state.withLock { $0.append(time) } }
    }
}
