import EventLoop
import Testing

@Suite(.timeLimit(.minutes(3))) struct OrderingTests {
    @Test func closuresOfOneThreadRunInTheOrderTheyWereQueued() async throws {
        try await withLoop { loop in
            let record = Record<Int>()
            for number in 0..<10_000 { loop.execute { record.append(number) } }
            await loop.settle()
            #expect(record.all == Array(0..<10_000))
        }
    }

    @Test func everyClosureOfManyThreadsRunsOnceAndInItsThreadsOrder() async throws {
        try await withLoop { loop in
            let record = Record<(thread: Int, number: Int)>()
            await withTaskGroup(of: Void.self) { group in
                for thread in 0..<8 {
                    group.addTask {
                        for number in 0..<2000 { loop.execute { record.append((thread, number)) } }
                    }
                }
            }
            await loop.settle()
            let all = record.all
            #expect(all.count == 16_000)
            for thread in 0..<8 {
                #expect(all.filter { $0.thread == thread }.map(\.number) == Array(0..<2000))
            }
        }
    }

    @Test func aSleepingLoopIsWokenByAnotherThread() async throws {
        try await withLoop { loop in
            // Each round finds the loop asleep: the answer of the one before has been waited for.
            for _ in 0..<500 {
                let answered: Bool = await withCheckedContinuation { continuation in
                    loop.execute { continuation.resume(returning: loop.inLoop) }
                }
                #expect(answered)
            }
        }
    }

    @Test func workQueuedByATurnsEndBelongsToTheNextTurn() async throws {
        try await withLoop { loop in
            let record = Record<String>()
            loop.execute {
                loop.atTurnEnd {
                    record.append("end 1")
                    loop.execute { record.append("job of the next turn") }
                    loop.atTurnEnd { record.append("end 2") }
                }
                loop.execute { record.append("job of this turn") }
            }
            await loop.settle()
            #expect(record.all == ["job of this turn", "end 1", "job of the next turn", "end 2"])
        }
    }

    @Test func theTurnsEndComesAfterTheJobsThatItsEventsMadeRunnable() async throws {
        let pair = try SocketPair()
        try await withLoop { loop in
            let record = Record<String>()
            let finished: Void = await withCheckedContinuation { continuation in
                loop.execute {
                    _ = loop.watch(pair.near, for: .readable) { _ in
                        guard readByte(pair.near) else { return }
                        record.append("event")
                        loop.atTurnEnd {
                            record.append("end")
                            continuation.resume()
                        }
                        loop.spawn {
                            record.append("task")
                            await Task.yield()
                            record.append("task goes on")
                        }
                    }
                    writeByte(pair.far)
                }
            }
            _ = finished
            #expect(record.all == ["event", "task", "task goes on", "end"])
        }
    }

    @Test func aTaskThatYieldsForEverStarvesNeitherDescriptorsNorTimers() async throws {
        let pair = try SocketPair()
        let time = ManualTime()
        try await withLoop(time: time) { loop in
            let yielder = loop.spawn { while !Task.isCancelled { await Task.yield() } }
            await withCheckedContinuation { (continuation: CheckedContinuation<Void, Never>) in
                loop.execute {
                    _ = loop.watch(pair.near, for: .readable) { _ in
                        if readByte(pair.near) { continuation.resume() }
                    }
                    writeByte(pair.far)
                }
            }
            await withCheckedContinuation { (continuation: CheckedContinuation<Void, Never>) in
                loop.execute {
                    _ = loop.schedule(afterMilliseconds: 1) { continuation.resume() }
                    time.advance(milliseconds: 1)
                }
            }
            yielder.cancel()
            await yielder.value
        }
    }
}
