import EventLoop
import Foundation
import Jobs
import Redis
import RedisQueue

/// A seeded queue on the Redis of `--redis`, with a loop of its own.
struct QueueRig: Sendable {
    let loop: EventLoop
    let client: RedisClient
    let keys: QueueKeys
    let sink: RedisJobSink

    struct Problem: Error {
        let text: String
    }

    /// `--partitions` (16).
    static func make(_ options: Options) async throws -> QueueRig {
        let address = try RedisAddress(options.text("redis"))
        let partitions = try options.number("partitions", default: 16)
        let loop = EventLoop(name: "bench-queue")
        let keys = QueueKeys(prefix: "ratchet:", partitions: partitions)
        return try await loop.run {
            let client = RedisClient(loop: loop, address: address, configuration: RedisClientConfiguration())
            guard await client.waitUntilConnected(milliseconds: 10_000) else { throw Problem(text: "redis is away") }
            try await QueueSeed(client: client, keys: keys).seed()
            var configuration = RedisJobSink.Configuration()
            configuration.mostWaiting = 100_000
            configuration.timeoutMilliseconds = 60_000
            return QueueRig(
                loop: loop, client: client, keys: keys,
                sink: RedisJobSink(loop: loop, client: client, keys: keys, configuration: configuration))
        }
    }

    /// An identify of exactly so many bytes.
    static func payload(_ number: Int, _ bytes: Int) -> [UInt8] {
        let head = #"{"appUserId":"user_\#(number)","bundleId":"com.example.app","locale":""#
        return Array(head.utf8) + Array(repeating: UInt8(ascii: "x"), count: bytes - head.utf8.count - 2)
            + Array("\"}".utf8)
    }

    /// Puts jobs in as the intake does: `batch` in one call of each partition, and the next batch once that is answered.
    /// - Returns: wall seconds.
    func accept(
        _ count: Int, batch: Int, bytes: Int = 400, lane: Lane = .write, organization: String = "demo"
    ) async throws -> Double {
        var jobs = Array(repeating: [NewJob](), count: keys.partitions)
        for number in 0..<count {
            let subject = "user_\(number)"
            jobs[keys.partition(organization: organization, subject: subject)].append(
                NewJob(
                    kind: .identify, lane: lane, organization: organization, subject: subject,
                    payload: Self.payload(number, bytes)))
        }
        let partitions = jobs
        let sink = sink
        return try await loop.run {
            let begin = ContinuousClock.now
            try await withThrowingTaskGroup(of: Void.self) { group in
                for jobs in partitions { group.addTask { try await Self.accept(jobs, batch, sink) } }
                try await group.waitForAll()
            }
            return begin.duration(to: .now) / .seconds(1)
        }
    }

    private static func accept(_ jobs: [NewJob], _ batch: Int, _ sink: RedisJobSink) async throws {
        for start in stride(from: 0, to: jobs.count, by: batch) {
            try await withThrowingTaskGroup(of: Void.self) { group in
                for job in jobs[start..<min(start + batch, jobs.count)] {
                    group.addTask {
                        let result = await sink.accept(job)
                        guard case .accepted = result else { throw Problem(text: "not accepted: \(result)") }
                    }
                }
                try await group.waitForAll()
            }
        }
    }

    /// A worker's side, with its `live:` key.
    func worker(_ name: String, stage: Stage = .write, alive: Bool = true) async throws -> RedisJobSource {
        try await loop.run {
            let waiter = RedisClient(
                loop: loop, address: client.address,
                configuration: RedisClientConfiguration(
                    connectionWaitMilliseconds: 5000, clientName: keys.prefix + name, connectionPerSlot: true))
            _ = await waiter.waitUntilConnected(milliseconds: 10_000)
            if alive { await LiveProcess(name: name, loop: loop, client: client, keys: keys).beat() }
            return RedisJobSource(
                loop: loop, client: client, waiter: waiter, keys: keys, stage: stage, consumer: name)
        }
    }
}
