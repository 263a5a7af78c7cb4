import EventLoop
import Jobs
import Service
import Synchronization
import Testing
import WorkerCore

/// A handler that stands still for good as soon as it is given the bad job, as far as anybody can see from outside: a
/// worker that died.
private final class DeadlyHandler: JobHandler, Sendable {
    private struct State {
        var deaths = 0
        var companies: [Int] = []
        var standing: [CheckedContinuation<Void, Never>] = []
        var watchers: [(deaths: Int, continuation: CheckedContinuation<Void, Never>)] = []
    }
    private let state = Mutex(State())

    /// How many jobs were in hand at each death, the bad one included.
    var companies: [Int] { state.withLock { $0.companies } }

    func handle(_ jobs: [FetchedJob]) async throws(DependencyDown) -> [JobOutcome] {
        if jobs.contains(where: { $0.payload.elementsEqual("bad".utf8) }) {
            await withCheckedContinuation { continuation in
                let watchers = state.withLock { state in
                    state.deaths += 1
                    state.companies.append(jobs.count)
                    state.standing.append(continuation)
                    let ready = state.watchers.filter { $0.deaths <= state.deaths }.map(\.continuation)
                    state.watchers.removeAll { $0.deaths <= state.deaths }
                    return ready
                }
                for watcher in watchers { watcher.resume() }
            }
        }
        return jobs.map { _ in .done }
    }

    func died(times count: Int) async {
        await withCheckedContinuation { continuation in
            let now = state.withLock { state in
                if state.deaths >= count { return true }
                state.watchers.append((count, continuation))
                return false
            }
            if now { continuation.resume() }
        }
    }

    /// Lets everything that stands go on, so that tests end.
    func release() {
        let standing = state.withLock { state in
            defer { state.standing = [] }
            return state.standing
        }
        for continuation in standing { continuation.resume() }
    }
}

/// cases/queue.md 64: a job takes worker after worker down, and its mates with it.
@Suite struct PoisonTests {
    @Test func ofABatchThatTakesWorkerAfterWorkerDownOnlyTheBadJobIsBuried() async throws {
        let time = ManualTime()
        let loop = EventLoop(name: "poison-test", time: time)
        let queue = MemoryQueue { time.wallMilliseconds }
        let handler = DeadlyHandler()
        let good = 70
        for index in 0..<good {
            _ = await queue.accept(
                NewJob(
                    kind: .identify, lane: .write, organization: "demo", subject: "\(index)",
                    payload: Array("good \(index)".utf8)))
            guard index == good / 2 else { continue }
            _ = await queue.accept(
                NewJob(
                    kind: .identify, lane: .write, organization: "demo", subject: "bad", payload: Array("bad".utf8)))
        }
        var tasks: [Task<Void, Never>] = []
        func startWorker(_ name: String) -> Worker {
            let worker = Worker(
                loop: loop, source: queue.source(.write), handler: handler,
                log: Log(process: name, level: .error, time: time, sink: MemoryLogSink()),
                metrics: WorkerMetrics(Metrics(), stage: .write))
            tasks.append(loop.spawn { await worker.run() })
            return worker
        }
        // In a batch, in a group, and three times alone.
        var workers: [Worker] = []
        for death in 1...5 {
            workers.append(startWorker("worker-\(death)"))
            await handler.died(times: death)
            queue.redeliverPending()
        }
        workers.append(startWorker("survivor"))
        await queue.settled(good + 1)
        #expect(queue.dead.map { String(decoding: $0.job.payload, as: UTF8.self) } == ["bad"])
        #expect(queue.dead.map(\.reason) == ["poison"])
        #expect(handler.companies == [71, 32, 1, 1, 1])

        let all = workers
        try await loop.run { for worker in all { worker.stop() } }
        queue.stop()
        handler.release()
        for task in tasks { await task.value }
        #expect(queue.dead.count == 1)
    }
}
