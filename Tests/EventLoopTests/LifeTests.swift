import EventLoop
import Synchronization
import Testing

@Suite(.timeLimit(.minutes(3))) struct LifeTests {
    @Test func stopRunsWhatWasQueuedBeforeIt() async throws {
        let record = Record<Int>()
        let loop = EventLoop(name: "stopping")
        for number in 0..<1000 { loop.execute { record.append(number) } }
        loop.stop()
        #expect(record.all == Array(0..<1000))
    }

    @Test func stopMayBeCalledTwiceAndFromTheLoopItself() async throws {
        let loop = EventLoop(name: "stopping")
        try await loop.run { loop.stop() }
        loop.stop()
        loop.stop()
    }

    @Test func stopFromManyThreadsReturnsToAll() async throws {
        let loop = EventLoop(name: "stopping")
        await withTaskGroup(of: Void.self) { group in
            for _ in 0..<8 { group.addTask { loop.stop() } }
        }
    }

    @Test func workAfterTheEndIsDroppedWithWhatItCaptured() async throws {
        final class Captured: Sendable {}
        let loop = EventLoop(name: "stopping")
        loop.stop()
        let record = Record<Int>()
        weak var captured: Captured?
        do {
            let object = Captured()
            captured = object
            loop.execute {
                record.append(1)
                withExtendedLifetime(object) {}
            }
        }
        #expect(captured == nil)
        #expect(record.count == 0)
    }

    @Test func nothingOfALoopIsLeftAfterStop() async throws {
        let pair = try SocketPair()
        for _ in 0..<50 {
            weak var gone: EventLoop?
            do {
                let loop = EventLoop(name: "leaving", time: ManualTime())
                gone = loop
                // All of these capture the loop: each would be a cycle if it were kept.
                try await loop.run {
                    _ = loop.watch(pair.near, for: .readable) { _ in loop.preconditionInLoop() }
                    _ = loop.schedule(afterMilliseconds: 3_600_000) { loop.preconditionInLoop() }
                    loop.cancel(loop.schedule(afterMilliseconds: 10) { loop.preconditionInLoop() })
                    loop.atTurnEnd { loop.execute { loop.preconditionInLoop() } }
                }
                loop.stop()
                loop.execute { loop.preconditionInLoop() }
            }
            #expect(gone == nil)
        }
    }

    @Test func handlersFreedAtTheEndMayStillCallTheLoop() async throws {
        /// Unwatches, cancels and queues when it is freed.
        final class Owner: @unchecked Sendable {
            let loop: EventLoop
            var watch: EventLoop.WatchToken?
            var timer: EventLoop.TimerToken?
            let freed: Record<Int>
            init(_ loop: EventLoop, _ freed: Record<Int>) {
                self.loop = loop
                self.freed = freed
            }
            deinit {
                if let watch { loop.unwatch(watch) }
                if let timer { loop.cancel(timer) }
                loop.execute {}
                loop.atTurnEnd {}
                freed.append(1)
            }
        }
        let pair = try SocketPair()
        let freed = Record<Int>()
        let loop = EventLoop(name: "leaving")
        try await loop.run {
            let owner = Owner(loop, freed)
            let other = Owner(loop, freed)
            other.watch = loop.watch(pair.near, for: .readable) { _ in withExtendedLifetime(owner) {} }
            owner.timer = loop.schedule(afterMilliseconds: 3_600_000) { withExtendedLifetime(other) {} }
        }
        loop.stop()
        #expect(freed.count == 2)
    }

    @Test func aLoopStoppedWhileOthersQueueEndsCleanly() async throws {
        for _ in 0..<100 {
            let loop = EventLoop(name: "raced")
            await withTaskGroup(of: Void.self) { group in
                for _ in 0..<3 {
                    group.addTask { for _ in 0..<50 { loop.execute {} } }
                }
                group.addTask { loop.stop() }
            }
        }
    }

    @Test func manyLoopsRunAtOnceAndTalkToEachOther() async throws {
        let loops = (0..<16).map { EventLoop(name: "loop-\($0)") }
        let hops = try await withThrowingTaskGroup(of: Int.self) { group in
            for start in 0..<16 {
                group.addTask {
                    var hops = 0
                    for step in 0..<64 {
                        let loop = loops[(start + step) % 16]
                        if try await loop.run({ loop.inLoop }) { hops += 1 }
                    }
                    return hops
                }
            }
            return try await group.reduce(0, +)
        }
        #expect(hops == 16 * 64)
        for loop in loops { loop.stop() }
    }
}
