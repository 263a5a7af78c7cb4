import EventLoop
import Synchronization
import Testing

/// What happened, in order, from any thread.
final class Record<Element: Sendable>: Sendable {
    private let entries = Mutex<[Element]>([])
    func append(_ element: Element) { entries.withLock { $0.append(element) } }
    var all: [Element] { entries.withLock { $0 } }
    var count: Int { entries.withLock { $0.count } }
}

/// Gives a loop to a test and stops it.
func withLoop<Result>(
    time: any TimeSource = SystemTime(), _ body: (EventLoop) async throws -> Result
) async throws -> Result {
    let loop = EventLoop(name: "test", time: time)
    do {
        let result = try await body(loop)
        loop.stop()
        return result
    } catch {
        loop.stop()
        throw error
    }
}

extension EventLoop {
    /// Waits until everything queued before it, and the turn it ran in, has been done.
    func settle() async {
        for _ in 0..<2 {
            await withCheckedContinuation { (continuation: CheckedContinuation<Void, Never>) in
                execute { self.atTurnEnd { continuation.resume() } }
            }
        }
    }
}

/// Two connected sockets, closed with the object.
final class SocketPair: Sendable {
    let near: Int32
    let far: Int32
    init() throws {
        var pair: [Int32] = [-1, -1]
        try #require(makePair(&pair) == 0)
        near = pair[0]
        far = pair[1]
    }
    deinit {
        closeDescriptor(near)
        closeDescriptor(far)
    }
}
