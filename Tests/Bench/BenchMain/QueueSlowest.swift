import EventLoop
import Foundation
import Jobs
import Redis
import RedisQueue

/// The slowest run of each script, by Redis' own clock, with `--jobs` jobs waiting: every use of each at its fullest
/// batch, with jobs of the greatest size too. Redis' clock also runs while it waits for a processor, so all is done
/// `--repeat` times: `<script>` is the slowest run of the calmest time, `<script> worst` that of all.
struct QueueSlowest: Subcommand {
    static let name = "queue-slowest"
    /// An identify with the most that its body may hold.
    private static let largeBytes = 24_000

    static func run(_ options: Options) async throws -> [String: Double] {
        let rig = try await QueueRig.make(options)
        let waiting = try options.number("jobs", default: 1_000_000)
        _ = try await rig.accept(waiting, batch: 64)
        try await addOthers(rig)

        let log = SlowLog(rig)
        try await log.start()
        var calmest: [String: Double] = [:]
        var worst: [String: Double] = [:]
        for time in 0..<(try options.number("repeat", default: 3)) {
            try await intake(rig, log)
            try await everySettlement(rig, log, time)
            try await deadWorker(rig, log, time)
            try await pausing(rig, log, time)
            try await deadLetters(rig, log)
            let slowest = log.take()
            calmest.merge(slowest, uniquingKeysWith: min)
            worst.merge(slowest, uniquingKeysWith: max)
        }
        for (script, milliseconds) in worst { calmest[script + " worst"] = milliseconds }
        return calmest
    }

    /// 2,000 delayed, parked and dead jobs in each partition: what lies beside a backlog on a bad day.
    private static func addOthers(_ rig: QueueRig) async throws {
        let fill = """
            for n = 1, 2000 do
                local header = 'identify|1|' .. n .. '|1|demo|5|0|||'
                redis.call('ZADD', KEYS[1], 9000000000000 + n, n)
                redis.call('HSET', KEYS[2], n, header .. '\\n' .. ARGV[1])
                redis.call('XADD', KEYS[3], '*', 'h', header, 'p', ARGV[1])
                redis.call('XADD', KEYS[4], '*', 'h', header, 'p', ARGV[1], 'reason', 'data_refused', 'text', 't')
            end
            """
        let keys = rig.keys
        try await rig.loop.run {
            for partition in 0..<keys.partitions {
                _ = try await rig.client.command([
                    "EVAL", .text(fill), "4", .text(keys.due(partition, .write)), .text(keys.later(partition, .write)),
                    .text(keys.parked(partition, .write)), .text(keys.dead(partition, .write)),
                    .bytes(QueueRig.payload(0, 400)),
                ])
            }
        }
    }

    private static func intake(_ rig: QueueRig, _ log: SlowLog) async throws {
        _ = try await rig.accept(20_000, batch: 256)
        _ = try await rig.accept(4_000, batch: 256, bytes: largeBytes)
        try await log.gather()
    }

    /// A full batch of every way to settle, and delayed jobs coming back.
    private static func everySettlement(_ rig: QueueRig, _ log: SlowLog, _ time: Int) async throws {
        let worker = try await rig.worker("measured-\(time)")
        try await rig.loop.run {
            var held: [FetchedJob] = []
            while held.count < 16_384 { held += await worker.fetch(atMost: 4096) }
            let quarter = held.count / 4
            func settle(_ part: Int, _ action: (FetchedJob) -> Settlement.Action) async {
                let jobs = held[(part * quarter)..<((part + 1) * quarter)]
                await worker.settle(jobs.map { Settlement($0, action($0)) })
            }
            await settle(0) { _ in .done }
            await settle(1) { _ in .retry(afterMilliseconds: 1, attempts: 1) }
            await settle(2) { _ in .dead(reason: "data_refused", text: String(repeating: "e", count: 1024)) }
            await settle(3) { .forward(to: .write, payload: $0.payload) }
            let promoting = rig.loop.spawn { await worker.promoteUntilCancelled() }
            while worker.counters.promoted < Int64(quarter) { await rig.loop.sleep(milliseconds: 10) }
            promoting.cancel()
        }
        try await log.gather()
    }

    /// Large jobs through hands, and all that a dead worker held.
    private static func deadWorker(_ rig: QueueRig, _ log: SlowLog, _ time: Int) async throws {
        _ = try await rig.accept(4_000, batch: 256, bytes: largeBytes, lane: .writeLive)
        let worker = try await rig.worker("second-\(time)")
        let dead = try await rig.worker("dead-\(time)", alive: false)
        let stopping = try await rig.worker("stopping-\(time)")
        try await rig.loop.run {
            var large: [FetchedJob] = []
            while large.count < 4_000 { large += await worker.fetch(atMost: 4_000 - large.count) }
            await worker.settle(large.map { Settlement($0, .retry(afterMilliseconds: 60_000, attempts: 1)) })
            _ = await stopping.fetch(atMost: 4_096)
            await stopping.release()
            var lost = 0
            while lost < 2_048 { lost += await dead.fetch(atMost: 2_048).count }
            let reclaiming = rig.loop.spawn { await worker.reclaimUntilCancelled() }
            while worker.counters.reclaimed < Int64(lost) {
                let taken = await worker.fetch(atMost: 1024)
                await worker.settle(taken.map { Settlement($0, .done) })
            }
            reclaiming.cancel()
        }
        try await log.gather()
    }

    /// Jobs of a paused organization are parked and come back.
    private static func pausing(_ rig: QueueRig, _ log: SlowLog, _ time: Int) async throws {
        _ = try await rig.accept(20_000, batch: 256, lane: .verify, organization: "paused")
        let orders = QueueOrders(client: rig.client, keys: rig.keys)
        let verifier = try await rig.worker("verifier-\(time)", stage: .verify)
        try await rig.loop.run {
            _ = try await orders.pause(.organization, "paused", owner: "bench", reason: "bench", milliseconds: nil)
            while verifier.counters.parked < 20_000 { _ = await verifier.fetch(atMost: 4096) }
            _ = try await orders.list()
            _ = try await orders.resume(.organization, "paused", owner: "bench")
            let unparking = rig.loop.spawn { await verifier.unparkUntilCancelled() }
            var back = 0
            while back < 20_000 {
                let taken = await verifier.fetch(atMost: 1024)
                await verifier.settle(taken.map { Settlement($0, .done) })
                back += taken.count
            }
            unparking.cancel()
        }
        try await log.gather()
    }

    /// Dead letters are copied, put back, trimmed.
    private static func deadLetters(_ rig: QueueRig, _ log: SlowLog) async throws {
        let streams = DeadLetterStreams(client: rig.client, keys: rig.keys)
        try await rig.loop.run {
            for partition in 0..<rig.keys.partitions {
                for _ in 0..<8 {
                    let letters = try await streams.uncopied(partition).filter { $0.lane == .write }
                    let redrives = letters.compactMap { letter in
                        JobHeader(encoded: letter.header).map {
                            DeadLetterStreams.Redrive(entry: letter.entry, header: $0, payload: letter.payload)
                        }
                    }
                    _ = try await streams.redrive(redrives, partition, .write)
                    if let last = letters.last {
                        try await streams.copied(partition, .write, through: last.entry, nowMilliseconds: .max / 2)
                    }
                }
            }
            _ = try await ShedLevel(client: rig.client, keys: rig.keys).update()
        }
        try await log.gather()
    }
}

/// Gathers the runs of scripts from Redis' slow log, which would not hold all of them at once.
private final class SlowLog {
    private let rig: QueueRig
    /// Milliseconds by the name of the script.
    private var figures: [String: Double] = [:]

    init(_ rig: QueueRig) { self.rig = rig }

    func start() async throws {
        _ = try await command("CONFIG", "SET", "slowlog-log-slower-than", "0")
        _ = try await command("CONFIG", "SET", "slowlog-max-len", "200000")
        _ = try await command("SLOWLOG", "RESET")
    }

    func gather() async throws {
        let entries = try await command("SLOWLOG", "GET", "-1").elements ?? []
        _ = try await command("SLOWLOG", "RESET")
        for entry in entries {
            guard let parts = entry.elements, parts.count >= 4, let microseconds = parts[2].int64,
                let command = parts[3].elements, command.count > 1, command[0].text == "EVALSHA",
                let name = command[1].text.flatMap({ QueueScripts.names[$0] })
            else { continue }
            figures[name] = max(figures[name] ?? 0, Double(microseconds) / 1000)
        }
    }

    /// What was gathered since the last time.
    func take() -> [String: Double] {
        defer { figures = [:] }
        return figures
    }

    private func command(_ words: String...) async throws -> RedisValue {
        let rig = rig
        let arguments = words.map { RedisArgument.text($0) }
        return try await rig.loop.run { try await rig.client.command(arguments, timeoutMilliseconds: 60_000) }
    }
}
