import EventLoop
import Synchronization
import Testing

@Suite(.timeLimit(.minutes(3))) struct ExecutorTests {
    /// An actor whose executor is a loop.
    actor Confined {
        let loop: EventLoop
        private(set) var count = 0
        nonisolated var unownedExecutor: UnownedSerialExecutor { loop.asUnownedSerialExecutor() }
        init(_ loop: EventLoop) { self.loop = loop }
        func step() -> Bool {
            count += 1
            assertIsolated()
            return loop.inLoop
        }
    }

    @Test func tasksRunOnTheLoopsThreadBeforeAndAfterEverySuspension() async throws {
        try await withLoop { loop in
            let other = EventLoop(name: "other")
            let places = try await loop.run {
                var places = [loop.inLoop]
                await Task.yield()
                places.append(loop.inLoop)
                await Task { @concurrent in await Task.yield() }.value
                places.append(loop.inLoop)
                places.append(try await other.run { other.inLoop && !loop.inLoop })
                places.append(loop.inLoop && !other.inLoop)
                await loop.sleep(milliseconds: 1)
                places.append(loop.inLoop)
                return places
            }
            #expect(places == Array(repeating: true, count: 6))
            #expect(!loop.inLoop)
            #expect(EventLoop.current == nil)
            other.stop()
        }
    }

    @Test func currentNamesTheLoopWhoseThreadRuns() async throws {
        try await withLoop { loop in
            let isCurrent = try await loop.run { EventLoop.current === loop }
            #expect(isCurrent)
        }
    }

    @Test func anActorOnTheLoopIsIsolatedAndKeepsItsState() async throws {
        try await withLoop { loop in
            let actor = Confined(loop)
            try await withThrowingTaskGroup(of: Bool.self) { group in
                for number in 0..<200 {
                    group.addTask {
                        if number % 2 == 0 { return await actor.step() }
                        return try await loop.run { await actor.step() }
                    }
                }
                for try await isInLoop in group { #expect(isInLoop) }
            }
            let count = await actor.count
            #expect(count == 200)
        }
    }

    @Test func synchronousCodeOnTheLoopMayAssumeItsActorsIsolation() async throws {
        try await withLoop { loop in
            let actor = Confined(loop)
            let result: Bool = await withCheckedContinuation { continuation in
                loop.execute {
                    continuation.resume(returning: actor.assumeIsolated { $0.step() })
                }
            }
            #expect(result)
        }
    }

    @Test func runHandsErrorsAndCancellationOver() async throws {
        struct Refused: Error {}
        try await withLoop { loop in
            await #expect(throws: Refused.self) { try await loop.run { throw Refused() } }
            let task = Task {
                try await loop.run {
                    while !Task.isCancelled { await Task.yield() }
                    return loop.inLoop
                }
            }
            task.cancel()
            let wasInLoop = try await task.value
            #expect(wasInLoop)
        }
    }

    @Test func childTasksInheritTheLoop() async throws {
        try await withLoop { loop in
            let places = try await loop.run {
                await withTaskGroup(of: Bool.self) { group in
                    for _ in 0..<4 { group.addTask { loop.inLoop } }
                    return await group.reduce(into: []) { $0.append($1) }
                }
            }
            #expect(places == [true, true, true, true])
        }
    }
}
