import EventLoop
import Jobs
import Service
import Synchronization
import Testing
import WorkerCore

/// A handler that answers as a script says and remembers what it was given.
private final class ScriptedHandler: JobHandler, Sendable {
    enum Step: Sendable {
        case answer(JobOutcome)
        case down
    }
    private struct State {
        var script: [Step]
        var batches: [[String]] = []
        var waiters: [(count: Int, continuation: CheckedContinuation<Void, Never>)] = []
    }
    private let state: Mutex<State>
    private let standard: JobOutcome

    init(_ script: [Step] = [], then standard: JobOutcome = .done) {
        state = Mutex(State(script: script))
        self.standard = standard
    }

    var batches: [[String]] { state.withLock { $0.batches } }

    func handle(_ jobs: [FetchedJob]) async throws(DependencyDown) -> [JobOutcome] {
        let (step, ready) = state.withLock { state -> (Step?, [CheckedContinuation<Void, Never>]) in
            state.batches.append(jobs.map { String(decoding: $0.payload, as: UTF8.self) })
            let step = state.script.isEmpty ? nil : state.script.removeFirst()
            let ready = state.waiters.filter { $0.count <= state.batches.count }.map(\.continuation)
            state.waiters.removeAll { $0.count <= state.batches.count }
            return (step, ready)
        }
        for waiter in ready { waiter.resume() }
        switch step {
        case .down: throw DependencyDown("postgres", "away")
        case .answer(let outcome): return jobs.map { _ in outcome }
        case nil: return jobs.map { _ in standard }
        }
    }

    /// Returns once the handler was called that often.
    func called(times count: Int) async {
        await withCheckedContinuation { continuation in
            let now = state.withLock { state in
                if state.batches.count >= count { return true }
                state.waiters.append((count, continuation))
                return false
            }
            if now { continuation.resume() }
        }
    }
}

/// A handler that hands on, and answers once its gate is open.
private final class GatedHandler: JobHandler, Sendable {
    private struct Gate {
        var isOpen = false
        var waiting: [CheckedContinuation<Void, Never>] = []
    }
    private let handler: ScriptedHandler
    private let gate = Mutex(Gate())

    init(_ handler: ScriptedHandler) { self.handler = handler }

    func open() {
        let waiting = gate.withLock { gate in
            gate.isOpen = true
            return gate.waiting
        }
        for one in waiting { one.resume() }
    }

    func handle(_ jobs: [FetchedJob]) async throws(DependencyDown) -> [JobOutcome] {
        let outcomes = try await handler.handle(jobs)
        await withCheckedContinuation { continuation in
            let isOpen = gate.withLock { gate in
                if !gate.isOpen { gate.waiting.append(continuation) }
                return gate.isOpen
            }
            if isOpen { continuation.resume() }
        }
        return outcomes
    }
}

/// A handler whose first batches stand still until it was called that often: a database that is slow.
private final class MeetingHandler: JobHandler, Sendable {
    private struct State {
        var batches: [[String]] = []
        var standing: [CheckedContinuation<Void, Never>] = []
    }
    private let state = Mutex(State())
    private let calls: Int
    private let failures: Int

    /// - Parameter failures: for so many calls, those that meet first, the dependency is away.
    init(calls: Int, failures: Int = 0) {
        self.calls = calls
        self.failures = failures
    }

    var batches: [[String]] { state.withLock { $0.batches } }

    func handle(_ jobs: [FetchedJob]) async throws(DependencyDown) -> [JobOutcome] {
        let number = state.withLock { state in
            state.batches.append(jobs.map { String(decoding: $0.payload, as: UTF8.self) })
            return state.batches.count
        }
        if number <= calls {
            await withCheckedContinuation { continuation in
                let met = state.withLock { state in
                    state.standing.append(continuation)
                    defer { if state.standing.count == calls { state.standing = [] } }
                    return state.standing.count == calls ? state.standing : []
                }
                for one in met { one.resume() }
            }
        }
        guard number > failures else { throw DependencyDown("postgres", "away") }
        return jobs.map { _ in .done }
    }
}

/// A worker on the queue in memory.
private struct WorkerBench {
    let loop: EventLoop
    let time: ManualTime
    let queue: MemoryQueue
    let worker: Worker
    let metrics = Metrics()
    let lines = MemoryLogSink()

    init(_ handler: any JobHandler, realTime: Bool = false, batch: Int = 1024) {
        let time = ManualTime()
        self.time = time
        loop = EventLoop(name: "worker-test", time: realTime ? SystemTime() : time)
        queue = MemoryQueue { time.wallMilliseconds }
        var configuration = Worker.Configuration()
        configuration.batch = batch
        worker = Worker(
            loop: loop, source: queue.source(.write), handler: handler, configuration: configuration,
            log: Log(process: "test", level: .warn, time: time, sink: lines),
            metrics: WorkerMetrics(metrics, stage: .write))
    }

    func accept(_ payload: String, kind: JobKind = .identify) async {
        _ = await queue.accept(
            NewJob(kind: kind, lane: .write, organization: "demo", subject: payload, payload: Array(payload.utf8)))
    }

    /// Runs the worker until `body` returns, then stops it.
    func running(_ body: () async -> Void) async throws {
        let worker = worker
        let work = loop.spawn { await worker.run() }
        await body()
        try await loop.run { worker.stop() }
        queue.stop()
        await work.value
    }
}

@Suite struct WorkerLoopTests {
    @Test func jobsThatWaitAreHandledTogetherAndSettled() async throws {
        let handler = ScriptedHandler()
        let bench = WorkerBench(handler)
        for name in ["a", "b", "c"] { await bench.accept(name) }
        try await bench.running { await handler.called(times: 1) }
        #expect(handler.batches == [["a", "b", "c"]])
        #expect(bench.queue.waiting(.write).isEmpty)
        #expect(bench.queue.dead.isEmpty)
    }

    @Test func aDependencyThatIsAwayCostsNoJobAndNoAttempt() async throws {
        let handler = ScriptedHandler([.down, .down])
        let bench = WorkerBench(handler, realTime: true)
        for name in ["a", "b", "c"] { await bench.accept(name) }
        try await bench.running { await handler.called(times: 4) }
        // Whole batch, then one job as a probe (which fails again), the probe that gets through, the rest.
        #expect(handler.batches == [["a", "b", "c"], ["a"], ["a"], ["b", "c"]])
        #expect(bench.queue.dead.isEmpty)
        #expect(bench.queue.delayed.isEmpty)
    }

    @Test func aPassingFailureCostsAnAttemptAndComesBackLater() async throws {
        let handler = ScriptedHandler([.answer(.transient(text: "deadlock"))])
        let bench = WorkerBench(handler)
        await bench.accept("a")
        try await bench.running { await handler.called(times: 1) }
        let delayed = try #require(bench.queue.delayed.first)
        #expect(delayed.job.header.attempts == 1)
        #expect((1000...1200).contains(delayed.milliseconds - bench.time.wallMilliseconds))
    }

    @Test func afterTheLastAttemptAJobIsADeadLetter() async throws {
        let handler = ScriptedHandler([], then: .transient(text: "deadlock"))
        let bench = WorkerBench(handler)
        await bench.accept("a")
        let worker = bench.worker
        let work = bench.loop.spawn { await worker.run() }
        for attempt in 1...20 {
            await bench.queue.settled(attempt)
            bench.time.advance(milliseconds: 400_000)
            bench.queue.promote()
        }
        try await bench.loop.run { worker.stop() }
        bench.queue.stop()
        await work.value
        #expect(bench.queue.dead.map(\.reason) == ["attempts_exhausted"])
        #expect(handler.batches.count == 20)
    }

    @Test func aPermanentFailureIsBuriedWithItsReason() async throws {
        let handler = ScriptedHandler([.answer(.permanent(reason: "data_refused", text: "22P05"))])
        let bench = WorkerBench(handler)
        await bench.accept("a")
        try await bench.running { await handler.called(times: 1) }
        #expect(bench.queue.dead.map(\.reason) == ["data_refused"])
        #expect(bench.queue.dead.map(\.text) == ["22P05"])
    }

    @Test func anUnknownKindWaitsForANewerWorkerAndIsBuriedAfterAnHour() async throws {
        let young = ScriptedHandler([.answer(.unsupported)])
        let bench = WorkerBench(young)
        await bench.accept("a", kind: JobKind(rawValue: "from_the_future"))
        try await bench.running { await young.called(times: 1) }
        let delayed = try #require(bench.queue.delayed.first)
        #expect(delayed.job.header.attempts == 0)
        #expect(delayed.milliseconds - bench.time.wallMilliseconds == 30_000)

        let old = ScriptedHandler([.answer(.unsupported)])
        let later = WorkerBench(old)
        await later.accept("a", kind: JobKind(rawValue: "from_the_future"))
        later.time.advance(milliseconds: 3_600_001)
        try await later.running { await old.called(times: 1) }
        #expect(later.queue.dead.map(\.reason) == ["unsupported"])
    }

    @Test func theJobsOfALostBatchRunInGroupsOf32AfterTheNewOnes() async throws {
        let handler = ScriptedHandler()
        let bench = WorkerBench(handler)
        let source = bench.queue.source(.write)
        for index in 0..<80 { await bench.accept("lost \(index)") }
        let lost = await source.fetch(atMost: 100)
        bench.queue.redeliver(lost)
        await bench.accept("new")
        try await bench.running { await bench.queue.settled(81) }
        #expect(handler.batches.map(\.count) == [1, 32, 32, 16])
        #expect(handler.batches.first == ["new"])
        #expect(bench.queue.dead.isEmpty)
    }

    @Test func jobsDeliveredThreeTimesRunAloneAndTheThirdUnendedStartIsPoison() async throws {
        let handler = ScriptedHandler()
        let bench = WorkerBench(handler)
        let source = bench.queue.source(.write)
        for name in ["bad", "good"] { await bench.accept(name) }
        bench.queue.redeliver(await source.fetch(atMost: 10))
        let delivered = await source.fetch(atMost: 10)
        // Three workers started the first one alone and died of it.
        for _ in 0..<3 { _ = await source.startAlone(delivered[0]) }
        bench.queue.redeliver(delivered)
        await bench.accept("new")
        try await bench.running { await handler.called(times: 2) }
        #expect(handler.batches == [["new"], ["good"]])
        #expect(bench.queue.dead.map { String(decoding: $0.job.payload, as: UTF8.self) } == ["bad"])
        #expect(bench.queue.dead.map(\.reason) == ["poison"])
    }

    @Test func aStopWhileADependencyIsAwayEndsAndSettlesNothing() async throws {
        let handler = ScriptedHandler(Array(repeating: .down, count: 1000))
        let bench = WorkerBench(handler, realTime: true)
        await bench.accept("a")
        try await bench.running { await handler.called(times: 2) }
        #expect(bench.queue.dead.isEmpty)
        #expect(bench.queue.delayed.isEmpty)
    }

    @Test(.timeLimit(.minutes(1))) func theNextBatchOfABacklogIsHandledBesideTheOneBefore() async throws {
        // Each of the two stands still until the other one has come.
        let handler = MeetingHandler(calls: 2)
        let bench = WorkerBench(handler, batch: 2)
        for name in ["a", "b", "c", "d"] { await bench.accept(name) }
        try await bench.running { await bench.queue.settled(4) }
        #expect(handler.batches == [["a", "b"], ["c", "d"]])
    }

    @Test(.timeLimit(.minutes(1))) func whenADependencyGoesAwayTheBatchBeforeTriesTheWayAlone() async throws {
        let handler = MeetingHandler(calls: 2, failures: 4)
        let bench = WorkerBench(handler, realTime: true, batch: 2)
        for name in ["a", "b", "c", "d"] { await bench.accept(name) }
        try await bench.running { await bench.queue.settled(4) }
        #expect(handler.batches == [["a", "b"], ["c", "d"], ["a"], ["a"], ["a"], ["b"], ["c", "d"]])
    }

    @Test(.timeLimit(.minutes(1))) func whatComesWhileFewWaitGathersForTheNextBatch() async throws {
        let handler = ScriptedHandler()
        let gate = GatedHandler(handler)
        let bench = WorkerBench(gate, batch: 8)
        await bench.accept("a")
        try await bench.running {
            await handler.called(times: 1)
            for name in ["b", "c"] {
                await bench.accept(name)
                // A fetch that waited for it would take it within a turn of the loop.
                for _ in 0..<3 { try? await bench.loop.run {} }
            }
            gate.open()
            await bench.queue.settled(3)
        }
        #expect(handler.batches == [["a"], ["b", "c"]])
    }

    /// A flood of equal lines took a machine's disk. cases/queue.md 58.
    @Test func aFloodOfBuriedJobsIsOneLogLineASecond() async throws {
        let handler = ScriptedHandler([], then: .permanent(reason: "data_refused", text: "22P05"))
        let bench = WorkerBench(handler)
        for index in 0..<500 { await bench.accept("bad \(index)") }
        try await bench.running { await bench.queue.settled(500) }
        #expect(bench.queue.dead.count == 500)
        #expect(bench.lines.lines.count { $0.contains("a job was buried") } == 1)
    }

    /// A server that was saturated used up the retries of what it did not take. cases/queue.md 60.
    @Test func aJobThatIsToldToComeLaterAgainAndAgainIsNeverBuriedForIt() async throws {
        let handler = ScriptedHandler([], then: .later(milliseconds: 60_000))
        let bench = WorkerBench(handler)
        await bench.accept("a")
        let worker = bench.worker
        let work = bench.loop.spawn { await worker.run() }
        for time in 1...50 {
            await bench.queue.settled(time)
            let delayed = try #require(bench.queue.delayed.first)
            #expect(delayed.job.header.attempts == 0)
            #expect(delayed.milliseconds - bench.time.wallMilliseconds == 60_000)
            bench.time.advance(milliseconds: 60_000)
            bench.queue.promote()
        }
        try await bench.loop.run { worker.stop() }
        bench.queue.stop()
        await work.value
        #expect(bench.queue.dead.isEmpty)
    }

    /// Deploys used up the retries of jobs. A suspect that waits for a dependency has ended no worker, however many stop
    /// meanwhile. cases/queue.md 65.
    @Test(.timeLimit(.minutes(1))) func aSuspectThatWaitsForADependencyThroughManyStopsIsNoPoison() async throws {
        let time = ManualTime()
        let queue = MemoryQueue { time.wallMilliseconds }
        let loop = EventLoop(name: "deploys")
        _ = await queue.accept(
            NewJob(kind: .identify, lane: .write, organization: "demo", subject: "a", payload: Array("a".utf8)))
        // Two workers died with it in hand.
        for _ in 0..<2 { queue.redeliver(await queue.source(.write).fetch(atMost: 1)) }
        func deploy(_ handler: ScriptedHandler, last: Bool = false, _ done: () async -> Void) async throws {
            let worker = Worker(
                loop: loop, source: queue.source(.write), handler: handler,
                log: Log(process: "test", level: .error, time: time, sink: MemoryLogSink()),
                metrics: WorkerMetrics(Metrics(), stage: .write))
            let work = loop.spawn { await worker.run() }
            await done()
            try await loop.run { worker.stop() }
            if last || !queue.dead.isEmpty { queue.stop() }
            await work.value
        }
        for _ in 0..<6 where queue.dead.isEmpty {
            let away = ScriptedHandler(Array(repeating: .down, count: 100))
            try await deploy(away) {
                for _ in 0..<2_000 where away.batches.isEmpty && queue.dead.isEmpty {
                    try? await Task.sleep(for: .milliseconds(5))
                }
            }
            queue.redeliverPending()
        }
        try #require(queue.dead.isEmpty)
        let back = ScriptedHandler()
        try await deploy(back, last: true) { await queue.settled(1) }
        #expect(back.batches == [["a"]])
        #expect(queue.dead.isEmpty)
    }
}
