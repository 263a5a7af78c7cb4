import EventLoop
import Testing

@Suite(.timeLimit(.minutes(3))) struct WatchTests {
    @Test func readinessIsToldUntilTheBytesAreRead() async throws {
        let pair = try SocketPair()
        try await withLoop { loop in
            let record = Record<Bool>()
            let done: Void = await withCheckedContinuation { continuation in
                loop.execute {
                    _ = loop.watch(pair.near, for: .readable) { readiness in
                        record.append(readiness == .readable)
                        if record.count == 3 {
                            #expect(readByte(pair.near))
                            continuation.resume()
                        }
                    }
                    writeByte(pair.far)
                }
            }
            _ = done
            await loop.settle()
            #expect(record.all == [true, true, true])
        }
    }

    @Test func rewatchChangesWhatIsToldAndUnwatchEndsIt() async throws {
        let pair = try SocketPair()
        try await withLoop { loop in
            let record = Record<UInt32>()
            let token = try await loop.run {
                loop.watch(pair.near, for: []) { record.append($0.rawValue) }
            }
            let watch = try #require(token)
            writeByte(pair.far)
            await loop.settle()
            #expect(record.count == 0)
            try await loop.run { loop.rewatch(watch, for: .writable) }
            await loop.settle()
            try await loop.run { loop.unwatch(watch) }
            let told = record.all
            #expect(!told.isEmpty && told.allSatisfy { $0 == EventLoop.Readiness.writable.rawValue })
            await loop.settle()
            #expect(record.count == told.count)
        }
    }

    @Test func eventsOfOneTurnAreDroppedForADescriptorThatAHandlerForgot() async throws {
        let first = try SocketPair()
        let second = try SocketPair()
        try await withLoop { loop in
            let record = Record<Int>()
            loop.execute {
                var tokens: [EventLoop.WatchToken] = []
                for (number, pair) in [first, second].enumerated() {
                    let token = loop.watch(pair.near, for: .readable) { _ in
                        record.append(number)
                        for token in tokens { loop.unwatch(token) }
                    }
                    if let token { tokens.append(token) }
                    writeByte(pair.far)
                }
            }
            await loop.settle()
            #expect(record.count == 1)
        }
    }

    @Test func theEndOfTheStreamIsReadableAndAFullHangUpIsToldUnasked() async throws {
        let half = try SocketPair()
        try await withLoop { loop in
            let readiness: UInt32 = await withCheckedContinuation { continuation in
                loop.execute {
                    var token: EventLoop.WatchToken?
                    token = loop.watch(half.near, for: .readable) { readiness in
                        if let token { loop.unwatch(token) }
                        continuation.resume(returning: readiness.rawValue)
                    }
                    endSending(half.far)
                }
            }
            #expect(readiness == EventLoop.Readiness.readable.rawValue)
            var pair: [Int32] = [-1, -1]
            try #require(makePair(&pair) == 0)
            let (near, far) = (pair[0], pair[1])
            let hangUp: Bool = await withCheckedContinuation { continuation in
                loop.execute {
                    var token: EventLoop.WatchToken?
                    token = loop.watch(near, for: []) { readiness in
                        if let token { loop.unwatch(token) }
                        continuation.resume(returning: readiness.contains(.hangup))
                    }
                    closeDescriptor(far)
                }
            }
            #expect(hangUp)
            closeDescriptor(near)
        }
    }

    @Test func aClosedDescriptorCannotBeWatched() async throws {
        try await withLoop { loop in
            let token = try await loop.run { loop.watch(-1, for: .readable) { _ in } }
            #expect(token == nil)
        }
    }
}
