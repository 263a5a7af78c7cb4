import EventLoop
import Jobs
import Postgres
import Redis
import Service
import TestSupport
import Testing
import Trust
import WorkerCore

@testable import RedisQueue
@testable import Verifier
@testable import WriterCore

/// Calls that wait for an answer, through the real stages on a real Redis.
@Suite(.timeLimit(.minutes(2))) struct AskTests {
    private enum Failure: Error { case notListening }

    private struct Bench: Sendable {
        let loop = EventLoop(name: "ask-test")
        let client: RedisClient
        let keys: QueueKeys
        let asker: Asker

        static func make(mostWaiting: Int = 1000) async throws -> Bench {
            let server = try await TestRedis.shared()
            return try await Bench(server.address, QueueKeys(prefix: server.keyPrefix(), partitions: 2), mostWaiting)
        }

        static func on(_ server: TestRedis) async throws -> Bench {
            try await Bench(server.address, QueueKeys(prefix: server.keyPrefix(), partitions: 2), 1000)
        }

        static func onCluster() async throws -> Bench {
            let cluster = try await TestRedisCluster.shared()
            return try await Bench(cluster.address, QueueKeys(prefix: cluster.keyPrefix(), partitions: 16), 1000)
        }

        private init(_ address: RedisAddress, _ keys: QueueKeys, _ mostWaiting: Int) async throws {
            self.keys = keys
            let loop = loop
            (client, asker) = try await loop.run {
                let client = RedisClient(loop: loop, address: address, configuration: RedisClientConfiguration())
                _ = await client.waitUntilConnected(milliseconds: 5000)
                try await QueueSeed(client: client, keys: keys).seed()
                let asker = Asker(
                    loop: loop, client: client,
                    sink: RedisJobSink(loop: loop, client: client, keys: keys), keys: keys, process: "ingress-1",
                    mostWaiting: mostWaiting)
                asker.start()
                guard await client.waitUntilSubscribed(milliseconds: 10_000) else { throw Failure.notListening }
                return (client, asker)
            }
        }

        func source(_ stage: Stage, _ name: String, alive: Bool = true) async throws -> RedisJobSource {
            let (client, keys, loop) = (client, keys, loop)
            return try await loop.run {
                let waiter = RedisClient(
                    loop: loop, address: client.address,
                    configuration: RedisClientConfiguration(connectionPerSlot: true))
                _ = await waiter.waitUntilConnected(milliseconds: 5000)
                if alive { await LiveProcess(name: name, loop: loop, client: client, keys: keys).beat() }
                return RedisJobSource(
                    loop: loop, client: client, waiter: waiter, keys: keys, stage: stage, consumer: name)
            }
        }

        func worker(_ stage: Stage, _ source: RedisJobSource) throws -> Worker {
            let handler: any JobHandler
            switch stage {
            case .verify:
                handler = VerifyHandler(
                    verifier: try SignedTransactionVerifier(), attestations: try AttestationVerifier(),
                    time: SystemTime(), cores: 1)
            case .write:
                // Echo needs no database; this one is never there.
                let nowhere = PostgresConfiguration(conninfo: "host=/nonexistent", schema: nil)
                handler = WriteHandler(loop: loop, postgres: PostgresClient(nowhere, on: loop)) { _ in }
            }
            return Worker(
                loop: loop, source: source, handler: handler,
                log: Log(process: "test", level: .error, time: SystemTime(), sink: MemoryLogSink()),
                metrics: WorkerMetrics(Metrics(), stage: stage))
        }

        func ask(_ text: String, milliseconds: Int64 = 20_000) async throws -> Asker.Answer {
            try await loop.run { [asker] in
                await asker.ask(
                    NewJob(
                        kind: .echo, lane: .verifyLive, organization: "demo", subject: text, payload: Array(text.utf8)),
                    timeoutMilliseconds: milliseconds)
            }
        }
    }

    /// Runs workers of both stages while `body` runs.
    private func working(_ bench: Bench, _ body: () async throws -> Void) async throws {
        var workers: [(Worker, RedisJobSource, Task<Void, Never>)] = []
        for stage in [Stage.verify, .write] {
            let source = try await bench.source(stage, "worker-\(stage)")
            let worker = try bench.worker(stage, source)
            workers.append((worker, source, bench.loop.spawn { await worker.run() }))
        }
        try await body()
        for (worker, source, task) in workers {
            try await bench.loop.run {
                worker.stop()
                await source.stopFetching()
            }
            await task.value
        }
    }

    /// The answer may leave on one node and be heard on another.
    @Test(arguments: [false, true]) func anEchoComesBackThroughBothStages(onCluster: Bool) async throws {
        let bench = onCluster ? try await Bench.onCluster() : try await Bench.make()
        try await working(bench) {
            let answer = try await bench.ask("line\nfeed")
            #expect(answer == .answered(Array("line\nfeed".utf8)))
            let answers = try await withThrowingTaskGroup(of: (String, Asker.Answer).self) { group in
                for index in 0..<50 { group.addTask { ("e\(index)", try await bench.ask("e\(index)")) } }
                return try await group.reduce(into: []) { $0.append($1) }
            }
            for (text, answer) in answers { #expect(answer == .answered(Array(text.utf8))) }
        }
        #expect(try await bench.loop.run { bench.asker.waiting } == 0)
    }

    @Test func withoutAWorkerTheDeadlineAnswersAndALateAnswerIsIgnored() async throws {
        let bench = try await Bench.make()
        guard case .unavailable = try await bench.ask("early", milliseconds: 50) else {
            Issue.record("answered by nobody")
            return
        }
        #expect(try await bench.loop.run { bench.asker.waiting } == 0)
        // The job is still there; a worker that comes now finds it expired and answers nobody.
        try await working(bench) {
            let answer = try await bench.ask("later")
            #expect(answer == .answered(Array("later".utf8)))
        }
        #expect(try await bench.loop.run { bench.asker.ignored } == 0)
        // An answer that was already on its way is ignored.
        let listeners = try await bench.loop.run {
            try await bench.client.command(["PUBLISH", .text(bench.keys.reply("ingress-1")), "1\nlate"]).int64
        }
        #expect(listeners == 1)
        try await working(bench) { _ = try await bench.ask("after") }
        #expect(try await bench.loop.run { bench.asker.ignored } == 1)
    }

    @Test func aWorkerKilledInTheMiddleIsReplacedAndTheAnswerIsRight() async throws {
        let bench = try await Bench.make()
        let dying = try await bench.source(.verify, "dying", alive: false)
        let asked = Task { try await bench.ask("survives") }
        var held: [FetchedJob] = []
        while held.isEmpty { held = try await bench.loop.run { await dying.fetch(atMost: 10) } }
        let heir = try await bench.source(.verify, "heir")
        let worker = try bench.worker(.verify, heir)
        try await bench.loop.run { await heir.reclaimOnce() }
        let task = bench.loop.spawn { await worker.run() }
        try await working(bench) {
            let answer = try await asked.value
            #expect(answer == .answered(Array("survives".utf8)))
        }
        try await bench.loop.run {
            worker.stop()
            await heir.stopFetching()
        }
        await task.value
    }

    /// A subscription for each call leaked, and after a reconnect half a million were made again. cases/queue.md 41.
    @Test func aProcessHasOneReplyChannelHoweverManyItAskedAndHoweverOftenTheLineBroke() async throws {
        let server = try await TestRedis.start()
        let bench = try await Bench.on(server)
        func channels() async throws -> [String] {
            try await server.command(["PUBSUB", "CHANNELS", "*"]).elements?.compactMap(\.text) ?? []
        }
        func listeners() async throws -> [Substring] {
            let list = try await server.command(["CLIENT", "LIST", "TYPE", "pubsub"]).text ?? ""
            return list.split(whereSeparator: \.isNewline)
        }
        try await working(bench) {
            for round in 0..<3 {
                for index in 0..<40 {
                    let text = "e\(round).\(index)"
                    #expect(try await bench.ask(text) == .answered(Array(text.utf8)))
                }
                #expect(try await channels() == [bench.keys.reply("ingress-1")])
                let found = try await listeners()
                #expect(found.count == 1 && found.allSatisfy { $0.contains(" sub=1 psub=0 ") }, "\(found)")
                try await server.command(["CLIENT", "KILL", "TYPE", "pubsub"])
                var isBack = false
                while !isBack {
                    isBack = try await bench.loop.run { bench.asker.isListening }
                    let confirmed = try await listeners().count == 1
                    isBack = isBack && confirmed
                }
            }
        }
        #expect(try await bench.loop.run { bench.asker.waiting } == 0)
        await server.remove()
    }

    @Test func aboveTheBoundCallsAreRefusedAtOnce() async throws {
        let bench = try await Bench.make(mostWaiting: 1)
        let waiting = Task { try await bench.ask("first", milliseconds: 60_000) }
        // Enqueued, so its waiter is registered.
        while try await bench.loop.run({ bench.asker.waiting }) == 0 {
            await bench.loop.sleep(milliseconds: 1)
        }
        #expect(try await bench.ask("second") == .unavailable("too many calls wait for an answer"))
        try await working(bench) {
            let answer = try await waiting.value
            #expect(answer == .answered(Array("first".utf8)))
        }
    }
}
