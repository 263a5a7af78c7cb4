import EventLoop
import Service
import Synchronization
import Testing

@Suite struct ProcessLifecycleTests {
    private let time = ManualTime()

    @Test func everyWaiterIsReleasedByTheFirstOrder() async {
        let lifecycle = ProcessLifecycle(graceMilliseconds: 20_000, time: time)
        #expect(!lifecycle.isStopping && lifecycle.remainingGraceMilliseconds == nil)
        await withTaskGroup(of: Void.self) { group in
            for _ in 0..<50 { group.addTask { await lifecycle.stopping() } }
            group.addTask { lifecycle.stop(because: "first") }
        }
        lifecycle.stop(because: "second")
        await lifecycle.stopping()
        #expect(lifecycle.isStopping && lifecycle.stopReason == "first")
    }

    @Test func aCancelledWaiterReturnsWithoutAStop() async {
        let lifecycle = ProcessLifecycle(graceMilliseconds: 1, time: time)
        for _ in 0..<200 {
            let task = Task { await lifecycle.stopping() }
            task.cancel()
            await task.value
        }
        #expect(!lifecycle.isStopping)
    }

    @Test func theGraceIsOneBudgetCountedFromTheFirstOrder() {
        let lifecycle = ProcessLifecycle(graceMilliseconds: 20_000, time: time)
        time.advance(milliseconds: 5_000)
        lifecycle.stop(because: "a")
        time.advance(milliseconds: 15_000)
        lifecycle.stop(because: "b")
        #expect(lifecycle.remainingGraceMilliseconds == 5_000)
        time.advance(milliseconds: 60_000)
        #expect(lifecycle.remainingGraceMilliseconds == 0)
    }

    @Test func listenersAreCalledOnceEarlyOrLate() {
        let lifecycle = ProcessLifecycle(graceMilliseconds: 1, time: time)
        let calls = Atomic<Int>(0)
        lifecycle.onStop { calls.add(1, ordering: .relaxed) }
        #expect(calls.load(ordering: .relaxed) == 0)
        lifecycle.stop(because: "a")
        lifecycle.stop(because: "b")
        lifecycle.onStop { calls.add(1, ordering: .relaxed) }
        #expect(calls.load(ordering: .relaxed) == 2)
    }
}
