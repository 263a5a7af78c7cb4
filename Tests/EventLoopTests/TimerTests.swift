import EventLoop
import TestSupport
import Testing

@testable import EventLoop

@Suite(.timeLimit(.minutes(3))) struct TimerTests {
    @Test func timersRunByDueTimeAndEqualOnesInTheOrderTheyWereSet() async throws {
        let time = ManualTime()
        try await withLoop(time: time) { loop in
            let record = Record<String>()
            loop.execute {
                for (delay, name) in [(30, "c"), (10, "a"), (20, "b1"), (20, "b2"), (0, "now")] as [(Int64, String)] {
                    _ = loop.schedule(afterMilliseconds: delay) { record.append(name) }
                }
            }
            await loop.settle()
            #expect(record.all == ["now"])
            time.advance(milliseconds: 9)
            await loop.settle()
            #expect(record.all == ["now"])
            time.advance(milliseconds: 1)
            await loop.settle()
            #expect(record.all == ["now", "a"])
            time.advance(milliseconds: 100)
            await loop.settle()
            #expect(record.all == ["now", "a", "b1", "b2", "c"])
        }
    }

    @Test func manualTimeWakesASleepingLoop() async throws {
        let time = ManualTime()
        try await withLoop(time: time) { loop in
            // An hour of real waiting would fail the test's time limit: only the jump can wake it.
            async let slept: Void = loop.run { await loop.sleep(milliseconds: 3_600_000) }
            while try await loop.run({ loop.timerEntries }) == 0 {}
            time.advance(milliseconds: 3_600_000)
            try await slept
        }
    }

    @Test func realTimeIsNeverEarly() async throws {
        try await withLoop { loop in
            let before = SystemTime().monotonicNanoseconds
            await loop.sleep(milliseconds: 20)
            #expect(SystemTime().monotonicNanoseconds - before >= 20_000_000)
        }
    }

    @Test func aCancelledTimerNeverRunsEvenWhenItIsDueInTheSameTurn() async throws {
        let time = ManualTime()
        try await withLoop(time: time) { loop in
            let record = Record<String>()
            loop.execute {
                var second: EventLoop.TimerToken?
                _ = loop.schedule(afterMilliseconds: 5) {
                    record.append("first")
                    if let second { loop.cancel(second) }
                }
                second = loop.schedule(afterMilliseconds: 5) { record.append("second") }
            }
            await loop.settle()
            time.advance(milliseconds: 5)
            await loop.settle()
            #expect(record.all == ["first"])
        }
    }

    @Test func aTimerThatSetsItselfAnewLetsTheTurnEnd() async throws {
        try await withLoop(time: ManualTime()) { loop in
            let record = Record<Int>()
            loop.execute {
                @Sendable func again() {
                    record.append(0)
                    _ = loop.schedule(afterMilliseconds: 0) { again() }
                }
                again()
            }
            await loop.settle()
            await loop.settle()
            #expect(record.count >= 2)
        }
    }

    @Test func delaysBeyondTheClockAndBelowZeroAreTakenAsNeverAndNow() async throws {
        let time = ManualTime()
        try await withLoop(time: time) { loop in
            let record = Record<String>()
            loop.execute {
                _ = loop.schedule(afterMilliseconds: .max) { record.append("never") }
                _ = loop.schedule(afterMilliseconds: .min) { record.append("now") }
            }
            await loop.settle()
            time.advance(milliseconds: 1_000_000_000)
            await loop.settle()
            #expect(record.all == ["now"])
        }
    }

    @Test func cancelledTimersDoNotPileUp() async throws {
        try await withLoop(time: ManualTime()) { loop in
            let most = try await loop.run {
                var most = 0
                _ = loop.schedule(afterMilliseconds: 5) {}
                for _ in 0..<100_000 {
                    loop.cancel(loop.schedule(afterMilliseconds: 60_000) {})
                    most = max(most, loop.timerEntries)
                }
                return most
            }
            #expect(most <= 70)
        }
    }

    @Test func theHeapGivesDueTimersInOrderWhateverWasCancelled() {
        var generator = SeededGenerator(seed: 11)
        for _ in 0..<40 {
            var heap = TimerHeap()
            var live: [UInt64: Int64] = [:]
            for token in 1...UInt64(200) {
                let due = Int64.random(in: 0..<50, using: &generator)
                heap.insert(token: token, due: due) {}
                live[token] = due
                if Bool.random(using: &generator), let victim = live.keys.sorted().randomElement(using: &generator) {
                    #expect(heap.remove(token: victim) != nil)
                    #expect(heap.remove(token: victim) == nil)
                    live[victim] = nil
                }
            }
            for now in Int64(0)..<50 {
                let due = live.values.filter { $0 == now }.count
                if let next = live.values.min() { #expect(heap.nextDue == next) }
                for _ in 0..<due { #expect(heap.popDue(now: now, olderThan: .max) != nil) }
                #expect(heap.popDue(now: now, olderThan: .max) == nil)
                live = live.filter { $0.value != now }
            }
            #expect(heap.isEmpty)
        }
    }

    @Test func freeingATimersCaptureMayCancelAnotherTimer() async throws {
        /// Cancels a second timer when it is freed.
        final class Canceller {
            let loop: EventLoop
            let token: EventLoop.TimerToken
            init(_ loop: EventLoop, _ token: EventLoop.TimerToken) {
                self.loop = loop
                self.token = token
            }
            deinit { loop.cancel(token) }
        }
        let time = ManualTime()
        try await withLoop(time: time) { loop in
            let record = Record<String>()
            loop.execute {
                let inner = loop.schedule(afterMilliseconds: 1) { record.append("inner") }
                let canceller = Canceller(loop, inner)
                let outer = loop.schedule(afterMilliseconds: 2) { withExtendedLifetime(canceller) {} }
                loop.execute { loop.cancel(outer) }
            }
            await loop.settle()
            time.advance(milliseconds: 5)
            await loop.settle()
            #expect(record.all.isEmpty)
        }
    }

    @Test func cancellingASleepEndsItAtOnceAndTakesItsTimerAway() async throws {
        try await withLoop(time: ManualTime()) { loop in
            for fromOutside in [false, true] {
                let sleeper =
                    fromOutside
                    ? Task { await loop.sleep(milliseconds: 3_600_000) }
                    : loop.spawn { await loop.sleep(milliseconds: 3_600_000) }
                while try await loop.run({ loop.timerEntries }) == 0 {}
                sleeper.cancel()
                await sleeper.value
                await loop.settle()
                let left = try await loop.run { loop.liveTimers }
                #expect(left == 0)
                // The lazily removed entry goes with the next look at the heap.
                while try await loop.run({ loop.timerEntries }) != 0 {}
            }
        }
    }

    @Test func sleepingInACancelledTaskReturnsAtOnce() async throws {
        try await withLoop(time: ManualTime()) { loop in
            let task = Task {
                while !Task.isCancelled { await Task.yield() }
                await loop.sleep(milliseconds: 3_600_000)
            }
            task.cancel()
            await task.value
        }
    }
}
