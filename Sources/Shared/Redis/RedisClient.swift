package import EventLoop

/// One pipelined connection to a Redis server, which reconnects by itself for ever.
///
/// Everything queued during one turn of the loop leaves in one write at its end, and replies come back in that order.
/// A command that blocks on the server (XREAD BLOCK, WAIT) holds up all behind it: give such commands a client of
/// their own whose timeout is longer than the block.
///
/// After a `READONLY`, `LOADING`, `MASTERDOWN` or `UNBLOCKED` answer the command fails with it, and the connection is
/// dropped and the address resolved anew; what else was in flight fails with `.unavailable`. Other error answers
/// (`OOM`, `MISCONF`, …) leave the connection as it is. A command past its deadline closes the connection, because the
/// replies that follow could no longer be told apart in time.
///
/// Confined to its loop: commands are called from tasks that run on it, which each entry point checks, and
/// continuations resume there. `init` and `close` may be called from anywhere. Cancelling a task does not recall a
/// command.
///
/// `@unchecked Sendable`: every stored `var` is touched on the loop's thread alone, as `preconditionInLoop` at each
/// entry point and the loop's own callbacks see to; `init` hands the object to the loop and touches nothing after.
package final class RedisClient: @unchecked Sendable {
    package let loop: EventLoop
    package let address: RedisAddress
    package let configuration: RedisClientConfiguration

    private let link: RedisLink
    private var subscriber: RedisSubscriber?
    private var waiters: [UInt64: Waiter] = [:]
    private var nextWaiter: UInt64 = 0
    private var stateHandler: (@Sendable (RedisLinkState) -> Void)?

    private struct Waiter {
        let continuation: UnsafeContinuation<Bool, Never>
        let timer: EventLoop.TimerToken
    }

    /// Starts connecting at once; `waitUntilConnected` tells when it is done.
    package init(
        loop: EventLoop, address: RedisAddress, configuration: RedisClientConfiguration = RedisClientConfiguration()
    ) {
        self.loop = loop
        self.address = address
        self.configuration = configuration
        link = RedisLink(loop: loop, address: address, configuration: configuration)
        link.onStateChange = { [weak self] state in self?.changed(to: state) }
        loop.execute { [link] in link.start() }
    }

    // MARK: - State

    /// What the connection for commands is doing.
    package var state: RedisLinkState {
        loop.preconditionInLoop()
        return link.state
    }

    /// Whether a command issued now would be sent.
    package var isConnected: Bool {
        loop.preconditionInLoop()
        return link.connection != nil
    }

    /// Commands sent or about to be, whose replies have not come.
    package var inFlight: Int {
        loop.preconditionInLoop()
        return link.connection?.pendingCount ?? 0
    }

    /// Told on the loop about each change of state of the command connection, for metrics and logs. Set it before the
    /// first await to see them all.
    package var onStateChange: (@Sendable (RedisLinkState) -> Void)? {
        get {
            loop.preconditionInLoop()
            return stateHandler
        }
        set {
            loop.preconditionInLoop()
            stateHandler = newValue
        }
    }

    /// Waits for a connection.
    /// - Returns: false when none came in time or the client is closed.
    package func waitUntilConnected(milliseconds: Int64) async -> Bool {
        loop.preconditionInLoop()
        return await withUnsafeContinuation { continuation in
            // Not sooner: entering this closure may cost a hop.
            if link.connection != nil { return continuation.resume(returning: true) }
            if case .closed = link.state { return continuation.resume(returning: false) }
            let id = nextWaiter
            nextWaiter += 1
            let timer = loop.schedule(afterMilliseconds: milliseconds) { [weak self] in
                self?.waiters.removeValue(forKey: id)?.continuation.resume(returning: false)
            }
            waiters[id] = Waiter(continuation: continuation, timer: timer)
        }
    }

    private func changed(to state: RedisLinkState) {
        switch state {
        case .connected: wake(true)
        case .closed: wake(false)
        case .connecting, .disconnected: break
        }
        stateHandler?(state)
    }

    private func wake(_ connected: Bool) {
        let waiting = waiters.sorted { $0.key < $1.key }
        waiters = [:]
        for (_, waiter) in waiting {
            loop.cancel(waiter.timer)
            waiter.continuation.resume(returning: connected)
        }
    }

    /// Ends the client: pending commands fail with `.closed`, subscriptions end. What was sent may still run on the
    /// server. May be called from any task, more than once; the loop must still run.
    package func close() async {
        if loop.inLoop {
            closeInLoop()
            return
        }
        await withUnsafeContinuation { (continuation: UnsafeContinuation<Void, Never>) in
            loop.execute { [self] in
                closeInLoop()
                continuation.resume()
            }
        }
    }

    private func closeInLoop() {
        subscriber?.close()
        subscriber = nil
        link.close()
        stateHandler = nil
    }

    // MARK: - Commands

    /// Sends one command and waits for its reply.
    /// - Parameter timeoutMilliseconds: nil takes the configuration's.
    /// - Throws: an error reply as `.server`, else why there is no reply; see `RedisError.Code`.
    package func command(
        _ arguments: [RedisArgument], timeoutMilliseconds: Int64? = nil
    ) async throws(RedisError) -> RedisValue {
        loop.preconditionInLoop()
        if link.connection == nil { await awaitConnection() }
        return try await withUnsafeContinuation { continuation in
            // Not sooner: entering this closure may cost a hop, and the connection may be another one after it.
            switch readyConnection(for: 1) {
            case .success(let connection):
                connection.send(
                    arguments,
                    timeoutMilliseconds: timeoutMilliseconds ?? configuration.commandTimeoutMilliseconds,
                    completion: .task(continuation))
            case .failure(let error): continuation.resume(returning: .failure(error))
            }
        }.get()
    }

    /// Sends commands back to back, nothing of others in between, and waits for all replies. It is no transaction:
    /// each command has its own outcome, and a lost connection leaves a tail of them in doubt.
    /// - Returns: one result per command, in order. More commands than `maxInFlight` never fit: all fail at once.
    package func pipeline(
        _ commands: [[RedisArgument]], timeoutMilliseconds: Int64? = nil
    ) async -> [Result<RedisValue, RedisError>] {
        loop.preconditionInLoop()
        guard !commands.isEmpty else { return [] }
        if link.connection == nil { await awaitConnection() }
        let timeout = timeoutMilliseconds ?? configuration.commandTimeoutMilliseconds
        return await withUnsafeContinuation { continuation in
            switch readyConnection(for: commands.count) {
            case .success(let connection):
                let replies = PipelineReplies(count: commands.count, continuation: continuation)
                for (index, arguments) in commands.enumerated() {
                    connection.send(
                        arguments, timeoutMilliseconds: timeout, completion: .pipeline(replies, index: index))
                }
            case .failure(let error):
                continuation.resume(returning: Array(repeating: .failure(error), count: commands.count))
            }
        }
    }

    /// Runs a script by its digest, and by its source when the server doesn't know it (yet, or any more, after a
    /// restart or SCRIPT FLUSH): it then runs after commands that were sent meanwhile. A script that was refused as
    /// unknown has not run.
    /// - Parameters:
    ///   - timeoutMilliseconds: of each of the two attempts; nil takes the configuration's.
    /// - Throws: as `command`.
    package func evaluate(
        _ script: RedisScript, keys: [RedisArgument], arguments: [RedisArgument], timeoutMilliseconds: Int64? = nil
    ) async throws(RedisError) -> RedisValue {
        func call(_ verb: RedisArgument, _ body: String) -> [RedisArgument] {
            var call: [RedisArgument] = []
            call.reserveCapacity(3 + keys.count + arguments.count)
            call.append(verb)
            call.append(.text(body))
            call.append(.integer(Int64(keys.count)))
            call.append(contentsOf: keys)
            call.append(contentsOf: arguments)
            return call
        }
        do throws(RedisError) {
            return try await command(call("EVALSHA", script.sha1), timeoutMilliseconds: timeoutMilliseconds)
        } catch {
            guard error.code == .server("NOSCRIPT") else { throw error }
            return try await command(call("EVAL", script.source), timeoutMilliseconds: timeoutMilliseconds)
        }
    }

    private func awaitConnection() async {
        guard configuration.connectionWaitMilliseconds > 0 else { return }
        _ = await waitUntilConnected(milliseconds: configuration.connectionWaitMilliseconds)
    }

    private func readyConnection(for count: Int) -> Result<RedisConnection, RedisError> {
        guard let connection = link.connection else {
            switch link.state {
            case .closed: return .failure(RedisError(code: .closed, message: "the client was closed"))
            case .disconnected(let error): return .failure(RedisError(code: .unavailable, message: error.message))
            case .connecting, .connected: return .failure(RedisError(code: .unavailable, message: "not connected"))
            }
        }
        guard connection.hasRoom(for: count) else {
            return .failure(RedisError(code: .unavailable, message: "too much in flight"))
        }
        return .success(connection)
    }

    // MARK: - Subscriptions

    /// Listens to a channel on a connection that this client keeps for its subscriptions. The channel is subscribed
    /// anew after each reconnect; what was published in between is lost, as ever with PUBLISH: use
    /// `waitUntilSubscribed` before asking for an answer. Ending the iteration unsubscribes; `close` ends the stream.
    package func subscribe(_ channel: String) -> AsyncStream<[UInt8]> {
        loop.preconditionInLoop()
        if case .closed = link.state { return AsyncStream { $0.finish() } }
        let subscriber = subscriber ?? RedisSubscriber(loop: loop, address: address, configuration: configuration)
        self.subscriber = subscriber
        return subscriber.subscribe(channel)
    }

    /// Whether the server has confirmed every subscription of this client on its present connection.
    package var isSubscribed: Bool {
        loop.preconditionInLoop()
        return subscriber?.isSubscribed ?? false
    }

    /// Waits until `isSubscribed`.
    /// - Returns: false when it didn't come true in time, nothing is subscribed, or the client is closed.
    package func waitUntilSubscribed(milliseconds: Int64) async -> Bool {
        loop.preconditionInLoop()
        return await subscriber?.waitUntilSubscribed(milliseconds: milliseconds) ?? false
    }
}
