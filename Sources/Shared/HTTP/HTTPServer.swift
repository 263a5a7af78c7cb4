internal import CLinux
package import EventLoop
internal import Glibc

/// An HTTP/1.1 server on one event loop: the listening sockets, the limits over all connections, and what the
/// connections share. A process with more cores runs one server per loop on the same port (`reusePort`).
///
/// When the limit of connections is met, new ones are accepted, answered 503 and closed: leaving them in the kernel's
/// queue would make callers wait for a timeout, and another loop on the same port could not take them. When the kernel
/// has no descriptor left, accepting pauses for a moment instead of spinning on a listener that stays ready.
///
/// `@unchecked Sendable`: the constants are Sendable; every mutable property is touched on the loop alone, which the
/// entry points check.
package final class HTTPServer: @unchecked Sendable {
    /// Answers a request, on the loop: at once, by returning the answer, or later, by returning nil and sending it through
    /// the reply. One request at a time per connection, so that answers keep the order of the requests without a buffer
    /// of early ones; nobody is told when the client goes away.
    package typealias Handler = @Sendable (HTTPRequest, HTTPReply) -> HTTPResponse?

    /// Connections taken per wake-up of a listener, so that a flood of them doesn't starve the open ones.
    private static let acceptsPerTurn = 64
    /// A pause of accepting: long enough not to spin, short enough to go unnoticed.
    private static let acceptPauseMilliseconds: Int64 = 100
    /// Refused connections that may linger for their 503 to arrive; the rest of a flood is closed at once.
    private static let maxLingeringRefusals = 128
    /// Bytes read at once: a usual request is whole in one read, a large body in few.
    private static let scratchBytes = 64 * 1024

    let loop: EventLoop
    let configuration: HTTPServerConfiguration
    let handler: Handler

    /// Where every connection reads to; what must be kept is copied out before the next read. Owned and freed here.
    let scratch = UnsafeMutableBufferPointer<UInt8>.allocate(capacity: HTTPServer.scratchBytes)
    var writer = ResponseWriter()
    var totals = HTTPServerCounters()

    private struct Listener {
        let fd: Int32
        var watch: EventLoop.WatchToken?
    }
    private var listeners: [Listener] = []
    private var acceptPause: EventLoop.TimerToken?
    private var connections: [Int32: HTTPConnection] = [:]
    private var perAddress: [AddressKey: Int] = [:]
    private var lingeringRefusals = 0
    private var unsent: [HTTPConnection] = []
    private var flushing: [HTTPConnection] = []
    private(set) var isShuttingDown = false
    private var deadline: EventLoop.TimerToken?
    private var waiters: [UnsafeContinuation<Void, Never>] = []

    /// An address without its port.
    private struct AddressKey: Hashable {
        let high: UInt64
        let low: UInt64
        init(_ peer: PeerAddress) {
            high = peer.high
            low = peer.low
        }
    }

    package init(
        loop: EventLoop, configuration: HTTPServerConfiguration = HTTPServerConfiguration(),
        answering handler: @escaping Handler
    ) {
        self.loop = loop
        self.configuration = configuration
        self.handler = handler
    }

    /// - Parameter handler: runs as a task on the loop, which is not cancelled when the client goes away. A task for each
    ///   request costs a few microseconds.
    package convenience init(
        loop: EventLoop, configuration: HTTPServerConfiguration = HTTPServerConfiguration(),
        handler: @escaping @Sendable (HTTPRequest) async -> HTTPResponse
    ) {
        self.init(loop: loop, configuration: configuration) { request, reply in
            loop.spawn { reply.send(await handler(request)) }
            return nil
        }
    }

    deinit {
        for listener in listeners { _ = clinux_close(listener.fd) }
        scratch.deallocate()
    }

    /// Read on the loop.
    package var counters: HTTPServerCounters {
        loop.preconditionInLoop()
        return totals
    }

    /// Starts taking connections. Safe from any thread, and more than once for several addresses.
    /// - Parameters:
    ///   - host: a numeric address, "127.0.0.1", "0.0.0.0" or "::" (both families).
    ///   - port: 0 for any free one.
    ///   - reusePort: lets other sockets listen on the same port; the kernel spreads connections over them.
    /// - Returns: the port.
    package func listen(host: String, port: Int, reusePort: Bool = false) throws(HTTPServerError) -> Int {
        guard let number = UInt16(exactly: port) else {
            throw HTTPServerError(.addressInvalid, "\(port) is no TCP port")
        }
        let fd = clinux_listen_tcp(host, number, Int32(clamping: configuration.backlog), reusePort ? 1 : 0)
        guard fd >= 0 else { throw Self.error(-fd, "\(host):\(port)") }
        let bound = clinux_local_port(fd)
        loop.execute { [self] in
            guard !isShuttingDown else {
                _ = clinux_close(fd)
                return
            }
            listeners.append(Listener(fd: fd, watch: nil))
            watchListeners()
        }
        return Int(bound)
    }

    private static func error(_ code: Int32, _ address: String) -> HTTPServerError {
        let text = String(cString: strerror(code))
        switch code {
        case EADDRINUSE: return HTTPServerError(.addressInUse, "\(address) is in use")
        case EINVAL, EADDRNOTAVAIL, EAFNOSUPPORT:
            return HTTPServerError(.addressInvalid, "\(address) is no numeric address of this machine")
        case EACCES, EPERM: return HTTPServerError(.permissionDenied, "\(address) is not allowed: \(text)")
        case EMFILE, ENFILE, ENOBUFS, ENOMEM: return HTTPServerError(.noResources, "\(address): \(text)")
        default: return HTTPServerError(.other, "\(address): \(text)")
        }
    }

    /// Stops accepting, finishes the requests that were accepted (the last answer of each connection says
    /// Connection: close), closes idle connections, and at the deadline closes whatever is left. Returns when no
    /// connection is open. Safe from any task; a second call waits for the same end.
    package func shutdown(graceMilliseconds: Int64) async {
        await withUnsafeContinuation { (continuation: UnsafeContinuation<Void, Never>) in
            loop.execute { [self] in
                waiters.append(continuation)
                beginShutdown(graceMilliseconds)
            }
        }
    }

    private func beginShutdown(_ graceMilliseconds: Int64) {
        if !isShuttingDown {
            // What the kernel has accepted for us already is ours to answer.
            for listener in listeners { acceptAll(listener.fd, atMost: configuration.backlog) }
            isShuttingDown = true
            for listener in listeners {
                if let watch = listener.watch { loop.unwatch(watch) }
                _ = clinux_close(listener.fd)
            }
            listeners = []
            if let pause = acceptPause { loop.cancel(pause) }
            acceptPause = nil
            deadline = loop.schedule(afterMilliseconds: graceMilliseconds) { [self] in
                deadline = nil
                for connection in Array(connections.values) { connection.abort() }
            }
            for connection in Array(connections.values) { connection.beginShutdown() }
        }
        finishShutdown()
    }

    private func finishShutdown() {
        guard isShuttingDown, connections.isEmpty else { return }
        if let timer = deadline { loop.cancel(timer) }
        deadline = nil
        let done = waiters
        waiters = []
        for continuation in done { continuation.resume() }
    }

    // MARK: - Accepting

    private func watchListeners() {
        for index in listeners.indices where listeners[index].watch == nil {
            let fd = listeners[index].fd
            listeners[index].watch = loop.watch(fd, for: .readable) { [self] _ in
                acceptAll(fd, atMost: Self.acceptsPerTurn)
            }
            if listeners[index].watch == nil { pauseAccepting() }
        }
    }

    private func pauseAccepting() {
        totals.acceptPauses += 1
        for index in listeners.indices {
            if let watch = listeners[index].watch { loop.unwatch(watch) }
            listeners[index].watch = nil
        }
        guard acceptPause == nil else { return }
        acceptPause = loop.schedule(afterMilliseconds: Self.acceptPauseMilliseconds) { [self] in
            acceptPause = nil
            watchListeners()
        }
    }

    private func acceptAll(_ listener: Int32, atMost count: Int) {
        var bytes: (UInt64, UInt64) = (0, 0)
        var port: UInt16 = 0
        for _ in 0..<count {
            let fd = withUnsafeMutableBytes(of: &bytes) { raw in
                clinux_accept(listener, raw.baseAddress?.assumingMemoryBound(to: UInt8.self), &port)
            }
            if fd >= 0 {
                let peer = PeerAddress(high: UInt64(bigEndian: bytes.0), low: UInt64(bigEndian: bytes.1), port: port)
                open(fd, peer)
                continue
            }
            switch -fd {
            case EAGAIN: return
            // The connection died in the queue, or a signal came: the next one may be well.
            case ECONNABORTED, EINTR, EPROTO: continue
            default: return pauseAccepting()
            }
        }
    }

    private func open(_ fd: Int32, _ peer: PeerAddress) {
        totals.accepted += 1
        let key = AddressKey(peer)
        let limit = configuration.maxConnectionsPerAddress
        if connections.count - lingeringRefusals >= configuration.maxConnections {
            return refuse(fd, peer, "the server has all the connections it can take")
        }
        if limit > 0, perAddress[key, default: 0] >= limit {
            return refuse(fd, peer, "too many connections from one address")
        }
        let connection = HTTPConnection(fd: fd, peer: peer, server: self, isRefused: false)
        guard connection.start() else {
            _ = clinux_close(fd)
            return
        }
        if limit > 0 { perAddress[key, default: 0] += 1 }
        connections[fd] = connection
        totals.connections += 1
    }

    private func refuse(_ fd: Int32, _ peer: PeerAddress, _ message: String) {
        totals.refused += 1
        let connection = HTTPConnection(fd: fd, peer: peer, server: self, isRefused: true)
        guard lingeringRefusals < Self.maxLingeringRefusals, connection.start() else {
            _ = clinux_close(fd)
            return
        }
        lingeringRefusals += 1
        connections[fd] = connection
        totals.connections += 1
        connection.fail(HTTPFailure(.tooManyConnections, message))
    }

    // MARK: - What connections call

    /// Forgets a connection that has closed its descriptor.
    func closed(_ connection: HTTPConnection) {
        connections[connection.fd] = nil
        totals.connections -= 1
        if connection.isRefused {
            lingeringRefusals -= 1
        } else if configuration.maxConnectionsPerAddress > 0 {
            let key = AddressKey(connection.peer)
            let left = perAddress[key, default: 1] - 1
            perAddress[key] = left > 0 ? left : nil
        }
        finishShutdown()
    }

    /// Sends the connection's output at the end of this turn, so that all answers of a turn leave in one send.
    func flushAtTurnEnd(_ connection: HTTPConnection) {
        if unsent.isEmpty { loop.atTurnEnd { [self] in flushAll() } }
        unsent.append(connection)
    }

    private func flushAll() {
        swap(&unsent, &flushing)
        for connection in flushing { connection.flush() }
        flushing.removeAll(keepingCapacity: true)
    }
}
