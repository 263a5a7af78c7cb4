package import EventLoop

/// The way to a Redis, whatever its form: one server, the primary that sentinels name, or a cluster. A pipelined
/// connection leads to the server, or to each node of the cluster that holds slots, and is made anew for ever.
///
/// In a cluster a command goes to the node that holds its first key; a node that knows better says so, and the command
/// goes on to the right one. A command that was sent on a connection that broke is never sent again, since it may have
/// run: that is for the caller to decide. A command that names no key goes to any node that holds slots, unless the
/// call says where.
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

    private enum Way {
        case link(RedisLink)
        case cluster(RedisCluster)
    }
    private let way: Way
    private var subscriber: RedisSubscriber?
    private let waiters: LoopWaiters
    private var stateHandler: (@Sendable (RedisLinkState) -> Void)?

    /// Nodes that one command may be sent to: each move of a slot costs one hop, and they move one at a time.
    private static let mostHops = 6
    /// A slot on the move is whole again within milliseconds, mostly.
    private static let tryAgainMilliseconds: Int64 = 20

    /// Starts connecting at once; `waitUntilConnected` tells when it is done.
    package init(
        loop: EventLoop, address: RedisAddress, configuration: RedisClientConfiguration = RedisClientConfiguration()
    ) {
        self.loop = loop
        self.address = address
        self.configuration = configuration
        waiters = LoopWaiters(loop: loop)
        if case .cluster(let seeds) = address.endpoint {
            let cluster = RedisCluster(loop: loop, address: address, seeds: seeds, configuration: configuration)
            way = .cluster(cluster)
            cluster.onStateChange = { [weak self] state in self?.changed(to: state) }
            loop.execute { cluster.start() }
        } else {
            let link = RedisLink(loop: loop, address: address, configuration: configuration)
            way = .link(link)
            link.onStateChange = { [weak self] state in self?.changed(to: state) }
            loop.execute { link.start() }
        }
    }

    /// Whether keys of different slots may lie on different servers, so that a command may not name keys of several.
    package var isCluster: Bool { if case .cluster = way { true } else { false } }

    // MARK: - State

    /// What the connection for commands is doing. Of a cluster's, the worst counts.
    package var state: RedisLinkState {
        loop.preconditionInLoop()
        return switch way {
        case .link(let link): link.state
        case .cluster(let cluster): cluster.state
        }
    }

    /// Whether a command issued now would be sent; in a cluster, whatever its key.
    package var isConnected: Bool { state == .connected }

    /// Commands sent or about to be, whose replies have not come.
    package var inFlight: Int {
        loop.preconditionInLoop()
        return switch way {
        case .link(let link): link.connection?.pendingCount ?? 0
        case .cluster(let cluster): cluster.inFlight
        }
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
        return await waiters.wait(milliseconds: milliseconds) {
            if isConnected { return true }
            return state == .closed ? false : nil
        }
    }

    private func changed(to state: RedisLinkState) {
        switch state {
        case .connected: waiters.wake(true)
        case .closed: waiters.wake(false)
        case .connecting, .disconnected: break
        }
        stateHandler?(state)
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
        switch way {
        case .link(let link): link.close()
        case .cluster(let cluster): cluster.close()
        }
        stateHandler = nil
    }

    // MARK: - Commands

    /// Sends one command and waits for its reply.
    /// - Parameters:
    ///   - key: for a command that names none: it runs where this key lies.
    ///   - timeoutMilliseconds: of each node that is tried; nil takes the configuration's.
    /// - Throws: an error reply as `.server`, else why there is no reply; see `RedisError.Code`.
    package func command(
        _ arguments: [RedisArgument], near key: RedisArgument? = nil, timeoutMilliseconds: Int64? = nil
    ) async throws(RedisError) -> RedisValue {
        loop.preconditionInLoop()
        let timeout = timeoutMilliseconds ?? configuration.commandTimeoutMilliseconds
        guard case .link(let link) = way else {
            return try await exchange([arguments], at: key ?? CommandKey.of(arguments), timeout)[0].get()
        }
        if link.connection == nil { await awaitConnection() }
        return try await withUnsafeContinuation { continuation in
            // Not sooner: entering this closure may cost a hop, and the connection may be another one after it.
            switch connection(of: link, for: 1) {
            case .success(let connection):
                connection.send(arguments, timeoutMilliseconds: timeout, completion: .task(continuation))
            case .failure(let error): continuation.resume(returning: .failure(error))
            }
        }.get()
    }

    /// Sends commands back to back, nothing of others in between, and waits for all replies; in a cluster that holds
    /// for those that go to one node. It is no transaction: each command has its own outcome, and a lost connection
    /// leaves a tail of them in doubt.
    /// - Returns: one result per command, in order. More commands than `maxInFlight` never fit: all fail at once.
    package func pipeline(
        _ commands: [[RedisArgument]], timeoutMilliseconds: Int64? = nil
    ) async -> [Result<RedisValue, RedisError>] {
        loop.preconditionInLoop()
        guard !commands.isEmpty else { return [] }
        let timeout = timeoutMilliseconds ?? configuration.commandTimeoutMilliseconds
        switch way {
        case .link(let link):
            if link.connection == nil { await awaitConnection() }
            return await send(commands, timeout, on: link)
        case .cluster(let cluster): return await pipeline(commands, timeout, cluster)
        }
    }

    /// Runs a script by its digest, and by its source when the server doesn't know it (yet, or any more, after a
    /// restart, a failover or SCRIPT FLUSH): it then runs after commands that were sent meanwhile. A script that was
    /// refused as unknown has not run.
    /// - Parameters:
    ///   - keys: of one slot; in a cluster the first one says where the script runs.
    ///   - timeoutMilliseconds: of each of the two attempts; nil takes the configuration's.
    /// - Throws: as `command`.
    package func evaluate(
        _ script: RedisScript, keys: [RedisArgument], arguments: [RedisArgument], timeoutMilliseconds: Int64? = nil
    ) async throws(RedisError) -> RedisValue {
        do throws(RedisError) {
            return try await command(
                Self.call("EVALSHA", script.sha1, keys, arguments), timeoutMilliseconds: timeoutMilliseconds)
        } catch {
            guard error.code == .server("NOSCRIPT") else { throw error }
            return try await command(
                Self.call("EVAL", script.source, keys, arguments), timeoutMilliseconds: timeoutMilliseconds)
        }
    }

    /// The same without a task, for whom a task for each call would cost more than the call.
    /// - Parameter completion: told once, on the loop; never before this returns.
    package func evaluate(
        _ script: RedisScript, keys: [RedisArgument], arguments: [RedisArgument], timeoutMilliseconds: Int64,
        completion: @escaping @Sendable (Result<RedisValue, RedisError>) -> Void
    ) {
        loop.preconditionInLoop()
        guard case .link(let link) = way, case .success(let connection) = connection(of: link, for: 1) else {
            // A cluster, or a connection that may come in a moment.
            return spawn(completion) { [self] () throws(RedisError) in
                try await evaluate(
                    script, keys: keys, arguments: arguments, timeoutMilliseconds: timeoutMilliseconds)
            }
        }
        let handler = PendingCommand.Completion.handler { [self] result in
            guard case .failure(let error) = result, error.code == .server("NOSCRIPT") else {
                return completion(result)
            }
            spawn(completion) { [self] () throws(RedisError) in
                try await command(
                    Self.call("EVAL", script.source, keys, arguments), timeoutMilliseconds: timeoutMilliseconds)
            }
        }
        connection.send(
            Self.call("EVALSHA", script.sha1, keys, arguments), timeoutMilliseconds: timeoutMilliseconds,
            completion: handler)
    }

    private func spawn(
        _ completion: @escaping @Sendable (Result<RedisValue, RedisError>) -> Void,
        _ body: @escaping @Sendable () async throws(RedisError) -> RedisValue
    ) {
        loop.spawn {
            do throws(RedisError) {
                completion(.success(try await body()))
            } catch {
                completion(.failure(error))
            }
        }
    }

    /// Runs a script and waits until replicas have what it wrote. WAIT follows the script on the same connection, back
    /// to back: sent after the reply it might reach another server, made primary meanwhile, whose replicas have all that
    /// it has and nothing of the write.
    /// - Parameters:
    ///   - replicas: how many must have it.
    ///   - milliseconds: how long they may take; commands behind it wait as long. Well below the timeout.
    /// - Returns: the script's reply, and how many replicas had its writes when the wait ended.
    /// - Throws: as `command`, also when the script ran and the connection was lost during the wait.
    package func evaluate(
        _ script: RedisScript, keys: [RedisArgument], arguments: [RedisArgument], untilReplicasHaveIt replicas: Int,
        withinMilliseconds milliseconds: Int64, timeoutMilliseconds: Int64? = nil
    ) async throws(RedisError) -> (reply: RedisValue, replicas: Int64) {
        loop.preconditionInLoop()
        let timeout = timeoutMilliseconds ?? configuration.commandTimeoutMilliseconds
        let wait: [RedisArgument] = ["WAIT", .integer(Int64(replicas)), .integer(milliseconds)]
        var results = await exchange(
            [Self.call("EVALSHA", script.sha1, keys, arguments), wait], at: keys.first, timeout)
        // Nothing was written before that wait: it says nothing.
        if case .failure(let error) = results[0], error.code == .server("NOSCRIPT") {
            results = await exchange(
                [Self.call("EVAL", script.source, keys, arguments), wait], at: keys.first, timeout)
        }
        return (try results[0].get(), try results[1].get().int64 ?? 0)
    }

    private static func call(
        _ verb: RedisArgument, _ body: String, _ keys: [RedisArgument], _ arguments: [RedisArgument]
    ) -> [RedisArgument] {
        var call: [RedisArgument] = []
        call.reserveCapacity(3 + keys.count + arguments.count)
        call.append(verb)
        call.append(.text(body))
        call.append(.integer(Int64(keys.reduce(0) { $0 + $1.count })))
        call.append(contentsOf: keys)
        call.append(contentsOf: arguments)
        return call
    }

    /// The answer of one of the servers that hold keys.
    package struct NodeReply: Sendable {
        /// `host:port` in a cluster; nil where there is but one server.
        package let node: String?
        package let reply: Result<RedisValue, RedisError>
    }

    /// Asks every server that holds keys: one, or each primary of a cluster.
    /// - Throws: `.unavailable` when the nodes of a cluster are not known.
    package func everyPrimary(
        _ arguments: [RedisArgument], timeoutMilliseconds: Int64? = nil
    ) async throws(RedisError) -> [NodeReply] {
        loop.preconditionInLoop()
        let timeout = timeoutMilliseconds ?? configuration.commandTimeoutMilliseconds
        switch way {
        case .link: return [NodeReply(node: nil, reply: await pipeline([arguments], timeoutMilliseconds: timeout)[0])]
        case .cluster(let cluster):
            await cluster.waitUntilReachable(.any, milliseconds: configuration.connectionWaitMilliseconds)
            _ = try cluster.link(to: .any).get()
            let hosts = cluster.primaries
            let replies = await send(hosts.map { (arguments, .success(cluster.link(to: $0))) }, timeout)
            return zip(hosts, replies).map { NodeReply(node: $0.description, reply: $1) }
        }
    }

    // MARK: - Sending

    private func awaitConnection() async {
        guard configuration.connectionWaitMilliseconds > 0 else { return }
        _ = await waitUntilConnected(milliseconds: configuration.connectionWaitMilliseconds)
    }

    /// Sends commands back to back to where a key lies. In a cluster they go on together when the first of them is sent
    /// elsewhere; it has not run then.
    private func exchange(
        _ commands: [[RedisArgument]], at key: RedisArgument?, _ timeout: Int64, after first: RedisCluster.Target? = nil
    ) async -> [Result<RedisValue, RedisError>] {
        switch way {
        case .link(let link):
            if link.connection == nil { await awaitConnection() }
            return await send(commands, timeout, on: link)
        case .cluster(let cluster):
            let slot = key.map { KeySlot.of($0) }
            var target = first ?? slot.map { RedisCluster.Target.slot($0) } ?? .any
            var hops = 1
            while true {
                await cluster.waitUntilReachable(target, milliseconds: configuration.connectionWaitMilliseconds)
                var results: [Result<RedisValue, RedisError>]
                var host: RedisHost?
                switch cluster.link(to: target) {
                case .success(let link):
                    host = link.host
                    if case .asking = target {
                        results = await send([["ASKING"]] + commands, timeout, on: link)
                        results.removeFirst()
                    } else {
                        results = await send(commands, timeout, on: link)
                    }
                case .failure(let error): results = commands.map { _ in .failure(error) }
                }
                guard case .failure(let error) = results[0],
                    let next = cluster.next(after: error, from: host, slot: slot), hops < Self.mostHops
                else { return results }
                hops += 1
                if next == target { await loop.sleep(milliseconds: Self.tryAgainMilliseconds) }
                target = next
            }
        }
    }

    private func send(
        _ commands: [[RedisArgument]], _ timeout: Int64, on link: RedisLink
    ) async -> [Result<RedisValue, RedisError>] {
        await withUnsafeContinuation { continuation in
            // Not sooner: entering this closure may cost a hop, and the connection may be another one after it.
            switch connection(of: link, for: commands.count) {
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

    /// Sends each command to its node, all nodes at once, and what was sent to a wrong one on to the right one.
    private func pipeline(
        _ commands: [[RedisArgument]], _ timeout: Int64, _ cluster: RedisCluster
    ) async -> [Result<RedisValue, RedisError>] {
        let keys = commands.map(CommandKey.of)
        let targets = keys.map { $0.map { RedisCluster.Target.slot(KeySlot.of($0)) } ?? .any }
        for target in targets {
            await cluster.waitUntilReachable(target, milliseconds: configuration.connectionWaitMilliseconds)
        }
        let links = targets.map(cluster.link)
        let hosts = links.map { (try? $0.get())?.host }
        var results = await send(Array(zip(commands, links)), timeout)
        for (index, result) in results.enumerated() {
            guard case .failure(let error) = result, let key = keys[index],
                let next = cluster.next(after: error, from: hosts[index], slot: KeySlot.of(key))
            else { continue }
            results[index] = await exchange([commands[index]], at: key, timeout, after: next)[0]
        }
        return results
    }

    /// Sends each command on a link of its own, all in one step.
    private func send(
        _ commands: [(arguments: [RedisArgument], link: Result<RedisLink, RedisError>)], _ timeout: Int64
    ) async -> [Result<RedisValue, RedisError>] {
        await withUnsafeContinuation { continuation in
            let replies = PipelineReplies(count: commands.count, continuation: continuation)
            for (index, command) in commands.enumerated() {
                switch command.link.flatMap({ connection(of: $0, for: 1) }) {
                case .success(let connection):
                    connection.send(
                        command.arguments, timeoutMilliseconds: timeout, completion: .pipeline(replies, index: index))
                case .failure(let error): replies.set(.failure(error), at: index)
                }
            }
        }
    }

    private func connection(of link: RedisLink, for count: Int) -> Result<RedisConnection, RedisError> {
        guard let connection = link.connection else {
            if state == .closed { return .failure(RedisError(code: .closed, message: "the client was closed")) }
            // One node's link may be closed for good while its client lives.
            var message = "not connected"
            if case .disconnected(let error) = link.state { message = error.message }
            return .failure(RedisError(code: .unavailable, message: message))
        }
        guard connection.hasRoom(for: count) else {
            return .failure(RedisError(code: .unavailable, message: "too much in flight"))
        }
        return .success(connection)
    }

    // MARK: - Subscriptions

    /// Listens to a channel on a connection that this client keeps for its subscriptions, in a cluster to any of its
    /// nodes. The channel is subscribed anew after each reconnect; what was published in between is lost, as ever with PUBLISH: use
    /// `waitUntilSubscribed` before asking for an answer. Ending the iteration unsubscribes; `close` ends the stream.
    package func subscribe(_ channel: String) -> AsyncStream<[UInt8]> {
        loop.preconditionInLoop()
        if case .closed = state { return AsyncStream { $0.finish() } }
        let subscriber = subscriber ?? makeSubscriber()
        self.subscriber = subscriber
        return subscriber.subscribe(channel)
    }

    private func makeSubscriber() -> RedisSubscriber {
        var knownNodes: (() -> [RedisHost])?
        if case .cluster(let cluster) = way { knownNodes = { [weak cluster] in cluster?.knownNodes ?? [] } }
        return RedisSubscriber(
            loop: loop, address: address, configuration: configuration, knownNodes: knownNodes)
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
