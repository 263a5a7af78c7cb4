import EventLoop
import Foundation
import Redis
import Synchronization
import TestSupport

/// Long enough for a debug build on a busy machine; met only by a test that fails.
let patienceMilliseconds: Int64 = 20_000

/// A client on a loop of its own, connected, and closed afterwards; the body runs on the loop.
func withClient<Result: Sendable>(
    _ address: RedisAddress, _ configuration: RedisClientConfiguration = RedisClientConfiguration(),
    waits: Bool = true, _ body: @escaping @Sendable (RedisClient) async throws -> Result
) async throws -> Result {
    let loop = EventLoop(name: "redis-test")
    let client = RedisClient(loop: loop, address: address, configuration: configuration)
    defer { loop.stop() }
    do {
        let result = try await loop.run {
            if waits { try await client.requireConnection() }
            return try await body(client)
        }
        await client.close()
        return result
    } catch {
        await client.close()
        throw error
    }
}

/// Asks again until the answer is yes: for what only another process knows and nobody is told of.
func eventually(_ claim: String, _ condition: () async throws -> Bool) async throws {
    let end = ContinuousClock.now + .milliseconds(patienceMilliseconds)
    while try await !condition() {
        guard ContinuousClock.now < end else { throw TestRedis.Failure(description: "never came true: \(claim)") }
        // A condition that is answered at once would leave its loop no time for what it waits for.
        try await Task.sleep(for: .milliseconds(5))
    }
}

/// A server of the test's own, removed afterwards.
func withServer<Result: Sendable>(
    _ options: TestRedis.Options = TestRedis.Options(),
    _ body: @escaping @Sendable (TestRedis) async throws -> Result
) async throws -> Result {
    let server = try await TestRedis.start(options)
    do {
        let result = try await body(server)
        await server.remove()
        return result
    } catch {
        await server.remove()
        throw error
    }
}

extension RedisClient {
    func requireConnection() async throws {
        guard await waitUntilConnected(milliseconds: patienceMilliseconds) else {
            throw TestRedis.Failure(description: "no connection: \(state)")
        }
    }

    /// Which connection the server sees; another number after a reconnect.
    func connectionID() async throws -> Int64 {
        try await command(["CLIENT", "ID"]).int64 ?? -1
    }

    /// The error of a command that is expected to fail.
    func failure(_ arguments: [RedisArgument], timeoutMilliseconds: Int64? = nil) async -> RedisError? {
        do throws(RedisError) {
            _ = try await command(arguments, timeoutMilliseconds: timeoutMilliseconds)
            return nil
        } catch {
            return error
        }
    }

    /// The states from now on, in order.
    func states() -> StateLog {
        let log = StateLog()
        onStateChange = { log.add($0) }
        return log
    }
}

/// Waits for states of a client as they come, missing none.
final class StateLog: Sendable {
    private let stream: AsyncStream<RedisLinkState>
    private let continuation: AsyncStream<RedisLinkState>.Continuation
    private let history = Mutex<[RedisLinkState]>([])

    init() { (stream, continuation) = AsyncStream.makeStream() }

    var all: [RedisLinkState] { history.withLock { $0 } }

    func add(_ state: RedisLinkState) {
        history.withLock { $0.append(state) }
        continuation.yield(state)
    }

    /// Consumes states up to the first that fits.
    func first(where fits: (RedisLinkState) -> Bool) async -> RedisLinkState? {
        for await state in stream where fits(state) { return state }
        return nil
    }

    func nextLoss() async -> RedisError? {
        var loss: RedisError?
        _ = await first { state in
            if case .disconnected(let error) = state {
                loss = error
                return true
            }
            return false
        }
        return loss
    }
}

extension Result where Success == RedisValue, Failure == RedisError {
    var error: RedisError? { if case .failure(let error) = self { error } else { nil } }
    var value: RedisValue? { if case .success(let value) = self { value } else { nil } }
}
