internal import CHiredis
internal import EventLoop

/// What a link is doing, for metrics and readiness.
package enum RedisLinkState: Sendable, Equatable {
    /// Resolving, connecting or greeting.
    case connecting
    case connected
    /// Waits out its backoff; the error says why it lost or never got its connection.
    case disconnected(RedisError)
    case closed
}

/// Keeps one connection to an address: finds the server, connects, greets, and after a loss does so again for ever,
/// with backoff.
///
/// With sentinels the server is the primary they name, which must say so itself. They are asked at each attempt and
/// each second while connected: a primary that was frozen or cut off learns last that it is none any more. For a
/// cluster it is any node, another one at each attempt.
///
/// ```
/// idle ──start──▶ connecting ──greeted──▶ connected
///                  ▲      │failed              │lost or the server is the wrong one
///                  │      ▼                    ▼
///                  └──timer── disconnected ◀───┘            any ──close──▶ closed
/// ```
///
/// Confined to its loop: `start` and `close` check, everything else is called by the loop's own callbacks.
///
/// `@unchecked Sendable`: only so that the resolver's callback, which runs on the loop, may hold a weak reference.
final class RedisLink: @unchecked Sendable {
    let loop: EventLoop
    let address: RedisAddress
    let configuration: RedisClientConfiguration

    private(set) var state = RedisLinkState.disconnected(
        RedisError(code: .unavailable, message: "not connected yet"))
    /// Non-nil exactly while the state is `connected`.
    private(set) var connection: RedisConnection?
    /// Before the first attempt has ended, one way or the other.
    private(set) var isNew = true
    /// Where the present attempt or connection leads; nil for a unix socket.
    private(set) var host: RedisHost?

    /// Told each change of state; on `connected` the connection is there and has nothing in flight.
    var onStateChange: ((RedisLinkState) -> Void)?

    private var greeting: RedisConnection?
    private var socket: (fd: Int32, watch: EventLoop.WatchToken)?
    private var endpoints: [chiredis_endpoint] = []
    private var timer: EventLoop.TimerToken?
    private var attempts = 0
    private var connectedAt: Int64 = 0
    /// Tells callbacks of an abandoned attempt from those of the present one.
    private var generation: UInt64 = 0
    private let isLoginOptional: Bool
    private let sentinels: RedisSentinels?
    private var sentinelTimer: EventLoop.TimerToken?
    /// The nodes of a cluster that may be tried, when more are known by now than its address names.
    var knownNodes: (() -> [RedisHost])?
    private var nextNode = Int.random(in: 0..<1024)

    private static let sentinelMilliseconds: Int64 = 1000

    /// - Parameter isLoginOptional: a server that has no password, or refuses it, is of use as long as it answers.
    init(
        loop: EventLoop, address: RedisAddress, configuration: RedisClientConfiguration, isLoginOptional: Bool = false
    ) {
        self.loop = loop
        self.address = address
        self.configuration = configuration
        self.isLoginOptional = isLoginOptional
        if case .sentinel(let name, let hosts) = address.endpoint {
            sentinels = RedisSentinels(
                loop: loop, name: name, sentinels: hosts, login: address, configuration: configuration)
        } else {
            sentinels = nil
        }
    }

    /// Only reached with an open socket when a client was dropped without `close` while connecting.
    deinit {
        guard let socket else { return }
        let (fd, watch) = socket
        loop.execute { [loop] in
            loop.unwatch(watch)
            chiredis_close(fd)
        }
    }

    // MARK: - Life

    func start() {
        loop.preconditionInLoop()
        if case .closed = state { return }
        generation &+= 1
        let attempt = generation
        become(.connecting)
        guard isCurrent(attempt) else { return }
        switch address.endpoint {
        case .unix(let path):
            var pending: Int32 = 0
            opened(chiredis_connect_unix(path, &pending), pending: pending)
        case .tcp(let host, let port): resolve(RedisHost(name: host, port: port), attempt)
        case .sentinel:
            sentinels?.ask { [weak self] answer in
                guard let self, isCurrent(attempt) else { return }
                switch answer {
                case .success(let primary): resolve(primary, attempt)
                case .failure(let error): failed(error.message)
                }
            }
        case .cluster(let seeds):
            let nodes = knownNodes?() ?? seeds
            nextNode &+= 1
            guard !nodes.isEmpty else { return failed("no node is known") }
            resolve(nodes[Int(UInt(bitPattern: nextNode) % UInt(nodes.count))], attempt)
        }
    }

    private func resolve(_ host: RedisHost, _ attempt: UInt64) {
        self.host = host
        setTimer(configuration.connectTimeoutMilliseconds) { $0.failed("resolving takes too long") }
        AddressResolver.resolve(host: host.name, port: host.port, on: loop) { [weak self] answer in
            guard let self, isCurrent(attempt) else { return }
            switch answer {
            case .success(let found):
                endpoints = found
                connectNext(after: "no address")
            case .failure(let error): failed(error.message)
            }
        }
    }

    /// Ends the connection and every attempt.
    /// - Parameter error: what pending commands fail with.
    func close(_ error: RedisError = RedisError(code: .closed, message: "the client was closed")) {
        loop.preconditionInLoop()
        if case .closed = state { return }
        sentinels?.close()
        let current = abandon()
        state = .closed
        current?.close(error)
        onStateChange?(.closed)
        onStateChange = nil
    }

    /// Drops the connection, as after a reply that shows that this server is the wrong one; a new one follows.
    func drop(_ error: RedisError) {
        guard let connection else { return }
        connection.close(error)
        lost(error)
    }

    private func isCurrent(_ attempt: UInt64) -> Bool {
        if case .closed = state { return false }
        return attempt == generation
    }

    private func become(_ next: RedisLinkState) {
        guard state != next else { return }
        state = next
        if next != .connecting { isNew = false }
        onStateChange?(next)
    }

    /// Forgets the present attempt and answers its connection, still open, if there is one.
    private func abandon() -> RedisConnection? {
        generation &+= 1
        if let timer { loop.cancel(timer) }
        timer = nil
        if let sentinelTimer { loop.cancel(sentinelTimer) }
        sentinelTimer = nil
        endpoints = []
        if let socket {
            loop.unwatch(socket.watch)
            chiredis_close(socket.fd)
        }
        socket = nil
        let current = connection ?? greeting
        connection = nil
        greeting = nil
        current?.onLoss = nil
        return current
    }

    private func setTimer(_ milliseconds: Int64, _ body: @escaping (RedisLink) -> Void) {
        if let timer { loop.cancel(timer) }
        timer = loop.schedule(afterMilliseconds: milliseconds) { [weak self] in
            guard let self else { return }
            timer = nil
            body(self)
        }
    }

    // MARK: - Connecting

    private func connectNext(after problem: String) {
        guard !endpoints.isEmpty else { return failed(problem) }
        var endpoint = endpoints.removeFirst()
        var pending: Int32 = 0
        opened(chiredis_connect_tcp(&endpoint, &pending), pending: pending)
    }

    private func opened(_ result: Int32, pending: Int32) {
        guard result >= 0 else { return connectNext(after: RedisConnection.systemMessage(-result)) }
        setTimer(configuration.connectTimeoutMilliseconds) { $0.tryNext("connecting takes too long") }
        guard pending == 1 else { return greet(result) }
        let watch = loop.watch(result, for: .writable) { [weak self] _ in self?.connected() }
        guard let watch else {
            chiredis_close(result)
            return failed("no descriptor left to watch")
        }
        socket = (result, watch)
    }

    private func connected() {
        guard let (fd, watch) = socket else { return }
        loop.unwatch(watch)
        socket = nil
        let result = chiredis_connect_result(fd)
        guard result == 0 else {
            chiredis_close(fd)
            return connectNext(after: RedisConnection.systemMessage(-result))
        }
        greet(fd)
    }

    /// Gives up the endpoint at hand.
    private func tryNext(_ problem: String) {
        if let socket {
            loop.unwatch(socket.watch)
            chiredis_close(socket.fd)
        }
        socket = nil
        let current = greeting
        greeting = nil
        current?.onLoss = nil
        current?.close(RedisError(code: .unavailable, message: problem))
        connectNext(after: problem)
    }

    /// Logs in, selects the database, and asks for PING: a server that is loading or that lost its primary answers
    /// the others but not this one.
    private func greet(_ fd: Int32) {
        guard let connection = RedisConnection(loop: loop, fd: fd, configuration: configuration) else {
            return failed("no memory or descriptor left for a connection")
        }
        greeting = connection
        connection.onLoss = { [weak self] error in
            guard let self, greeting === connection else { return }
            greeting = nil
            connectNext(after: error.message)
        }
        if let password = address.password {
            let user: [RedisArgument] = address.user.map { [.text($0)] } ?? []
            ask(connection, ["AUTH"] + user + [.text(password)], isLoginOptional ? nil : "OK")
        }
        if let name = configuration.clientName { ask(connection, ["CLIENT", "SETNAME", .text(name)], nil) }
        if address.database != 0 { ask(connection, ["SELECT", .integer(Int64(address.database))], "OK") }
        ask(connection, ["PING"], "PONG", last: sentinels == nil)
        if sentinels != nil { askRole(connection) }
    }

    /// Sentinels may name a server that is no primary any more, or not yet.
    private func askRole(_ connection: RedisConnection) {
        let completion = PendingCommand.Completion.handler { [weak self, weak connection] result in
            guard let self, let connection, greeting === connection else { return }
            switch result {
            case .success(let value) where value.elements?.first?.text == "master": greeted(connection)
            case .success: tryNext("\(host?.description ?? "the server") is no primary")
            case .failure(let error): tryNext(error.message)
            }
        }
        connection.send(
            ["ROLE"], timeoutMilliseconds: configuration.connectTimeoutMilliseconds, completion: completion)
    }

    /// - Parameter expected: nil takes any answer: a server that forbids CLIENT is still of use.
    private func ask(
        _ connection: RedisConnection, _ arguments: [RedisArgument], _ expected: String?, last: Bool = false
    ) {
        let completion = PendingCommand.Completion.handler { [weak self, weak connection] result in
            guard let self, let connection, greeting === connection else { return }
            switch result {
            case .success(let value):
                if expected == nil || value.text == expected {
                    if last { greeted(connection) }
                } else {
                    tryNext("the peer does not answer as Redis does")
                }
            case .failure(let error):
                if last && error.code == .server("MISCONF") {
                    // It can't save and so refuses to write, and PING with it; reading works, and operators need it.
                    greeted(connection)
                } else if expected != nil || !connection.isOpen {
                    tryNext(error.message)
                }
            }
        }
        connection.send(
            arguments, timeoutMilliseconds: configuration.connectTimeoutMilliseconds, completion: completion)
    }

    private func greeted(_ connection: RedisConnection) {
        if let timer { loop.cancel(timer) }
        timer = nil
        endpoints = []
        greeting = nil
        self.connection = connection
        connectedAt = loop.time.monotonicNanoseconds
        connection.onLoss = { [weak self, weak connection] error in
            // A reply's handler may have closed this link already.
            guard let self, let connection, self.connection === connection else { return }
            lost(error)
        }
        if sentinels != nil { watchSentinels() }
        become(.connected)
    }

    private func watchSentinels() {
        let attempt = generation
        sentinelTimer = loop.schedule(afterMilliseconds: Self.sentinelMilliseconds) { [weak self] in
            guard let self, isCurrent(attempt) else { return }
            sentinelTimer = nil
            sentinels?.ask { [weak self] answer in
                guard let self, isCurrent(attempt), connection != nil else { return }
                if case .success(let primary) = answer, primary != host {
                    drop(RedisError(code: .unavailable, message: "the sentinels name \(primary) as the primary"))
                } else {
                    watchSentinels()
                }
            }
        }
    }

    // MARK: - Losing

    private func lost(_ error: RedisError) {
        connection = nil
        let lived = (loop.time.monotonicNanoseconds - connectedAt) / 1_000_000
        if lived >= configuration.maxBackoffMilliseconds { attempts = 0 }
        retryLater(error)
    }

    private func failed(_ problem: String) {
        let error = RedisError(code: .unavailable, message: "can't connect to \(address): \(problem)")
        abandon()?.close(error)
        retryLater(error)
    }

    private func retryLater(_ error: RedisError) {
        _ = abandon()
        let attempt = generation
        become(.disconnected(error))
        guard isCurrent(attempt) else { return }
        setTimer(Self.backoff(attempts: attempts, configuration)) { $0.start() }
        attempts += 1
    }

    /// Doubles from the shortest to the longest pause. Jitter is upward only, so that a pause is never shorter than
    /// what was set.
    static func backoff(attempts: Int, _ configuration: RedisClientConfiguration) -> Int64 {
        let shortest = max(1, configuration.minBackoffMilliseconds)
        let longest = max(shortest, configuration.maxBackoffMilliseconds)
        let doubled = shortest.multipliedReportingOverflow(by: 1 << Int64(min(max(0, attempts), 30)))
        let base = doubled.overflow ? longest : min(longest, doubled.partialValue)
        return base + Int64.random(in: 0...max(1, base / 5))
    }
}
