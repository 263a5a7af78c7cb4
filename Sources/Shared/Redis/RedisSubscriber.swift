internal import EventLoop

/// The subscriptions of one client, on a link of their own: RESP2 allows no other command on a subscribed connection.
///
/// `@unchecked Sendable`: touched on the loop alone; streams that end elsewhere come back to it first.
final class RedisSubscriber: @unchecked Sendable {
    private let loop: EventLoop
    private let configuration: RedisClientConfiguration
    private let pingMilliseconds: Int64
    private let link: RedisLink

    private struct Channel {
        var listeners: [UInt64: AsyncStream<[UInt8]>.Continuation] = [:]
        /// Confirmed by the server on the present connection.
        var confirmed = false
    }
    /// Keyed by the bytes of the name: equal text in another Unicode form is another channel.
    private var channels: [[UInt8]: Channel] = [:]
    private let waiters: LoopWaiters
    private var nextID: UInt64 = 0
    private var pingTimer: EventLoop.TimerToken?
    private var bytesAtPing: UInt64 = 0

    /// How soon a server that went silent is left, where there are others.
    private static let otherServersPingMilliseconds: Int64 = 1000

    /// - Parameter knownNodes: of a cluster; any of them will do, since each hears what is published on the others.
    init(
        loop: EventLoop, address: RedisAddress, configuration: RedisClientConfiguration,
        knownNodes: (() -> [RedisHost])?
    ) {
        self.loop = loop
        waiters = LoopWaiters(loop: loop)
        link = RedisLink(loop: loop, address: address, configuration: configuration)
        link.knownNodes = knownNodes
        switch address.endpoint {
        case .unix, .tcp: pingMilliseconds = configuration.subscriptionPingMilliseconds
        case .sentinel, .cluster:
            pingMilliseconds = min(configuration.subscriptionPingMilliseconds, Self.otherServersPingMilliseconds)
        }
        self.configuration = configuration
        link.onStateChange = { [weak self] state in self?.changed(to: state) }
        link.start()
    }

    /// A client that is let go without `close` leaves nobody listening for ever.
    deinit {
        for channel in channels.values {
            for listener in channel.listeners.values { listener.finish() }
        }
    }

    var isSubscribed: Bool {
        link.connection != nil && !channels.isEmpty && channels.values.allSatisfy { $0.confirmed }
    }

    func subscribe(_ name: String) -> AsyncStream<[UInt8]> {
        let key = Array(name.utf8)
        let id = nextID
        nextID += 1
        let (stream, continuation) = AsyncStream.makeStream(
            of: [UInt8].self, bufferingPolicy: .bufferingNewest(configuration.subscriptionBuffer))
        continuation.onTermination = { [weak self, loop] _ in
            loop.execute { [weak self] in self?.remove(id, from: key) }
        }
        let isNew = channels[key] == nil
        channels[key, default: Channel()].listeners[id] = continuation
        if isNew { send("SUBSCRIBE", [key]) }
        return stream
    }

    func waitUntilSubscribed(milliseconds: Int64) async -> Bool {
        await waiters.wait(milliseconds: milliseconds) {
            if isSubscribed { return true }
            if case .closed = link.state { return false }
            return channels.isEmpty ? false : nil
        }
    }

    func close() {
        link.close()
    }

    private func remove(_ id: UInt64, from key: [UInt8]) {
        guard channels[key]?.listeners.removeValue(forKey: id) != nil else { return }
        if channels[key]?.listeners.isEmpty == true {
            channels[key] = nil
            send("UNSUBSCRIBE", [key])
            if channels.isEmpty { waiters.wake(false) } else if isSubscribed { waiters.wake(true) }
        }
    }

    private func send(_ verb: RedisArgument, _ keys: [[UInt8]]) {
        guard let connection = link.connection, !keys.isEmpty else { return }
        connection.send([verb] + keys.map { .bytes($0) }, timeoutMilliseconds: 0, completion: nil)
    }

    private func changed(to state: RedisLinkState) {
        switch state {
        case .connected:
            link.connection?.onPush = { [weak self] value in self?.received(value) }
            send("SUBSCRIBE", Array(channels.keys))
            schedulePing()
        case .disconnected:
            stopPing()
            for key in channels.keys { channels[key]?.confirmed = false }
        case .closed:
            stopPing()
            let ending = channels.values.flatMap { $0.listeners.values }
            channels = [:]
            for listener in ending { listener.finish() }
            waiters.wake(false)
        case .connecting: break
        }
    }

    private func received(_ value: RedisValue) {
        if case .error(let error) = value {
            link.drop(RedisError(error))
            return
        }
        // `message`, `subscribe` and `unsubscribe` have three elements, `pong` two.
        guard let parts = value.elements, parts.count == 3, let kind = parts[0].text, let key = parts[1].bytes else {
            return
        }
        switch kind {
        case "message":
            guard let payload = parts[2].bytes, let listeners = channels[key]?.listeners.values else { return }
            for listener in listeners { listener.yield(payload) }
        case "subscribe":
            channels[key]?.confirmed = true
            if isSubscribed { waiters.wake(true) }
        default: break
        }
    }

    // MARK: - Signs of life

    /// A subscription only listens, so a peer that vanished would never be noticed: PING makes it speak.
    private func schedulePing() {
        stopPing()
        bytesAtPing = link.connection?.receivedBytes ?? 0
        send("PING")
        pingTimer = loop.schedule(afterMilliseconds: pingMilliseconds) { [weak self] in
            guard let self, let connection = link.connection else { return }
            pingTimer = nil
            if connection.receivedBytes == bytesAtPing {
                link.drop(RedisError(code: .unavailable, message: "no sign of life from the server"))
            } else {
                schedulePing()
            }
        }
    }

    private func send(_ verb: RedisArgument) {
        link.connection?.send([verb], timeoutMilliseconds: 0, completion: nil)
    }

    private func stopPing() {
        if let pingTimer { loop.cancel(pingTimer) }
        pingTimer = nil
    }
}
