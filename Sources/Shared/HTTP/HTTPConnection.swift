internal import CLinux
internal import EventLoop
internal import Glibc

/// The shell around one socket: feeds the parser, hands requests to the handler one at a time, sends answers in order,
/// and keeps the deadlines. Everything it does is a reaction to readiness, a finished handler, a timer or shutdown, and
/// ends in `settle`, which derives what to wait for from the state alone.
///
/// The life of a connection: open (requests are read) → closing (no more are read; those taken are answered) →
/// lingering (all is sent, the sending side is shut, what still comes is thrown away) → closed.
///
/// `@unchecked Sendable`: touched on the loop of its server alone, which `answer`, the one way in from outside, checks.
final class HTTPConnection: @unchecked Sendable {
    private enum Phase {
        case open, closing, lingering, closed
    }

    private enum Deadline: Equatable {
        case none, header, body, idle, write, linger
    }

    /// An output buffer larger than this is given back once it is sent.
    private static let keptOutputBytes = 64 * 1024

    let fd: Int32
    let peer: PeerAddress
    /// True for a connection above the limits, which is told so and closed.
    let isRefused: Bool
    /// Strong: the server forgets a closed connection, which ends the cycle.
    private let server: HTTPServer
    private var loop: EventLoop { server.loop }
    private var configuration: HTTPServerConfiguration { server.configuration }

    private var phase = Phase.open
    private var watch: EventLoop.WatchToken?
    private var interest: EventLoop.Readiness = .readable
    private var peerHasEnded = false

    private var parser: HTTPRequestParser
    /// Bytes that came beyond the bounds and wait for room.
    private var unparsed: [UInt8] = [] { didSet { hasUnparsed = !unparsed.isEmpty } }
    private var waiting: [HTTPRequest] = []
    // What is asked again and again on the way of each request, as plain numbers: looking into an array that is changed
    // in place is guarded at run time, which costs more than the look.
    private var hasUnparsed = false
    private var waitingCount = 0
    private var unsentBytes = 0
    private var waitingBytes = 0
    /// The head of the request that is being handled.
    private var handling: HTTPRequestHead?
    private var isHandling: Bool { handling != nil }
    /// Set while requests are handed out, so that a handler that answers through its reply at once doesn't nest.
    private var isHandingOut = false
    /// Requests handed to the handler.
    private var handled = 0
    /// Requests completed; with the kind it names a deadline, so that a new request starts a new one.
    private var completed = 0
    /// An error to answer once the requests before it are answered.
    private var failure: (HTTPFailure, HTTPRequestHead?)?

    private var output: [UInt8] = []
    private var sent = 0
    /// Set while the socket takes no more.
    private var isBlocked = false
    private var willFlush = false

    private var deadlineKind = Deadline.none
    private var deadlineOrdinal = -1
    private var deadlineNanoseconds = Int64.max
    private var timer: EventLoop.TimerToken?
    private var timerNanoseconds = Int64.max

    init(fd: Int32, peer: PeerAddress, server: HTTPServer, isRefused: Bool) {
        self.fd = fd
        self.peer = peer
        self.server = server
        self.isRefused = isRefused
        parser = HTTPRequestParser(limits: server.configuration)
    }

    /// - Returns: false when the kernel can't watch one more descriptor; the caller still owns it then.
    func start() -> Bool {
        watch = loop.watch(fd, for: interest) { [self] readiness in ready(readiness) }
        if watch != nil { settle() }
        return watch != nil
    }

    // MARK: - Reading

    private func ready(_ readiness: EventLoop.Readiness) {
        // A full hang-up: nobody is left to read an answer.
        if readiness.has(.hangup) { return close() }
        if readiness.has(.readable) { read() }
        if readiness.has(.writable) { flush() }
        settle()
    }

    private func read() {
        guard phase == .open || phase == .lingering, !peerHasEnded else { return }
        let count = clinux_recv(fd, server.scratch.baseAddress, UInt64(server.scratch.count))
        if count > 0 {
            server.totals.receivedBytes += count
            guard phase == .open else { return }
            consume(UnsafeBufferPointer(rebasing: server.scratch[..<Int(count)]))
            proceed()
        } else if count == 0 {
            if phase == .lingering { return close() }
            peerHasEnded = true
            proceed()
        } else if -count != Int64(EAGAIN) {
            close()
        }
    }

    /// No room for more requests or more answers: the client has to wait, and TCP tells it so.
    private var isFull: Bool {
        waitingCount >= configuration.maxPipelined || waitingBytes >= configuration.maxBufferedBytes || isCongested
    }

    /// No byte of a request that is not yet complete has come.
    private var isUnasked: Bool { parser.isBetweenRequests && !hasUnparsed }

    private var isCongested: Bool { unsentBytes >= configuration.maxBufferedBytes }

    private func consume(_ bytes: UnsafeBufferPointer<UInt8>) {
        let input = bytes.span
        var offset = 0
        while offset < input.count, phase == .open {
            if isFull {
                unparsed.append(contentsOf: bytes[offset...])
                return
            }
            switch parser.parse(input, from: &offset, bodyLimit: configuration.bodyLimit) {
            case .needsMore: return
            case .request(let head, let body):
                completed += 1
                if parser.shouldClose { phase = .closing }
                let request = HTTPRequest(head: head, body: body, peer: peer)
                if isHandling || waitingCount > 0 {
                    waiting.append(request)
                    waitingCount += 1
                    waitingBytes += body.count
                } else {
                    handle(request)
                }
            case .failure(let problem):
                fail(problem)
            }
        }
    }

    /// Goes on with what had to wait: bytes beyond the bounds, the end of the stream, an error, "100 Continue".
    private func proceed() {
        while phase == .open, hasUnparsed, !isFull {
            let bytes = unparsed
            unparsed = []
            bytes.withUnsafeBufferPointer { consume($0) }
        }
        if phase == .open, peerHasEnded, !hasUnparsed {
            if parser.isBetweenRequests {
                phase = .closing
            } else {
                fail(HTTPFailure(.malformedRequest, "the connection ended inside a request"))
            }
        }
        handleWaiting()
        guard !isHandling, waitingCount == 0 else { return }
        if let (problem, head) = failure {
            failure = nil
            write(configuration.failure(problem, head), orPlain: problem, omitsBody: head?.method == .head)
        } else if phase == .open, parser.takeContinue() {
            output.append(contentsOf: Self.continueLines)
            flushAtTurnEnd()
        }
    }

    private static let continueLines = Array("HTTP/1.1 100 Continue\r\n\r\n".utf8)

    /// Answers an error after the requests before it, and closes.
    func fail(_ problem: HTTPFailure) {
        guard phase == .open else { return }
        switch problem.code {
        case .requestTimeout: server.totals.timeouts += 1
        case .tooManyConnections: break
        default: server.totals.badRequests += 1
        }
        phase = .closing
        failure = (problem, parser.head)
        proceed()
        settle()
    }

    // MARK: - Handling

    private func handleWaiting() {
        guard !isHandingOut, waitingCount > 0 else { return }
        isHandingOut = true
        defer { isHandingOut = false }
        while !isHandling, waitingCount > 0, !isCongested {
            let request = waiting.removeFirst()
            waitingCount -= 1
            waitingBytes -= request.body.count
            handle(request)
        }
    }

    private func handle(_ request: HTTPRequest) {
        server.totals.requests += 1
        handled += 1
        handling = request.head
        let reply = HTTPReply(connection: self, ordinal: handled)
        if let response = server.handler(request, reply) { answer(response, handled) }
    }

    /// Takes the answer to the request of that number.
    func answer(_ response: HTTPResponse, _ ordinal: Int) {
        loop.preconditionInLoop()
        guard ordinal == handled, let head = handling else { return }
        handling = nil
        guard phase != .closed else { return }
        if ResponseWriter.asksToClose(response) {
            phase = .closing
            abandonWaiting()
        }
        if server.isShuttingDown, phase == .open, waitingCount == 0, isUnasked { phase = .closing }
        let closes = phase == .closing && waitingCount == 0 && failure == nil
        let isValid = server.writer.append(
            response, to: &output, wallMicroseconds: loop.time.wallMicroseconds, closes: closes,
            omitsBody: head.method == .head)
        if !isValid {
            server.totals.badRequests += 1
            phase = .closing
            abandonWaiting()
            let problem = HTTPFailure(.invalidResponse, "the answer could not be sent")
            write(configuration.failure(problem, head), orPlain: problem, omitsBody: head.method == .head)
        }
        // What is left to do, `flush` does at the end of this turn, or once the socket takes bytes again.
        flushAtTurnEnd()
        handleWaiting()
    }

    private func abandonWaiting() {
        waiting = []
        waitingCount = 0
        waitingBytes = 0
        failure = nil
        unparsed = []
    }

    // MARK: - Writing

    private func write(_ response: HTTPResponse, orPlain problem: HTTPFailure, omitsBody: Bool) {
        let now = loop.time.wallMicroseconds
        if !server.writer.append(
            response, to: &output, wallMicroseconds: now, closes: true, omitsBody: omitsBody)
        {
            _ = server.writer.append(
                problem.plainResponse, to: &output, wallMicroseconds: now, closes: true, omitsBody: omitsBody)
        }
        flushAtTurnEnd()
    }

    private func flushAtTurnEnd() {
        unsentBytes = output.count - sent
        guard !willFlush, !isBlocked else { return }
        willFlush = true
        server.flushAtTurnEnd(self)
    }

    /// Sends what the turn gathered.
    func flush() {
        willFlush = false
        guard phase == .open || phase == .closing, unsentBytes > 0 else { return settle() }
        let count = output.withUnsafeBufferPointer { bytes in
            let rest = UnsafeBufferPointer(rebasing: bytes[sent...])
            return clinux_send(fd, rest.baseAddress, UInt64(rest.count))
        }
        guard count >= 0 || -count == Int64(EAGAIN) else { return close() }
        sent += Int(max(0, count))
        unsentBytes -= Int(max(0, count))
        isBlocked = unsentBytes > 0
        if count > 0, isBlocked { deadlineKind = .none }
        if !isBlocked {
            output.removeAll(keepingCapacity: output.capacity <= Self.keptOutputBytes)
            sent = 0
        }
        if !isHandling, !isCongested { proceed() }
        settle()
    }

    // MARK: - Closing

    /// Lets the connection end as soon as what was accepted is answered.
    func beginShutdown() {
        // What has arrived already was accepted by the kernel in our name.
        if phase == .open, !isFull { read() }
        if phase == .open, isIdle, isUnasked { return close() }
        settle()
    }

    /// Closes at once, whatever is still to do.
    func abort() { close() }

    private func close() {
        guard phase != .closed else { return }
        phase = .closed
        if let watch { loop.unwatch(watch) }
        watch = nil
        _ = clinux_close(fd)
        if let timer { loop.cancel(timer) }
        timer = nil
        abandonWaiting()
        output = []
        sent = 0
        unsentBytes = 0
        server.closed(self)
    }

    /// Shuts the sending side and reads on for a while: closing with unread bytes would make the kernel send a reset,
    /// which can destroy the answer on its way (RFC 9112 §9.6).
    private func linger() {
        if peerHasEnded || clinux_shutdown_send(fd) < 0 { return close() }
        phase = .lingering
    }

    // MARK: - What to wait for

    /// Nothing is being handled or sent.
    private var isIdle: Bool { !isHandling && waitingCount == 0 && failure == nil && unsentBytes == 0 }

    private func settle() {
        let isIdle = isIdle
        // The second case: the last answer was on its way before the shutdown began.
        if isIdle, phase == .closing || (phase == .open && server.isShuttingDown && isUnasked) { linger() }
        guard phase != .closed, let watch else { return }
        var wanted = EventLoop.Readiness(rawValue: 0)
        if phase == .lingering || (phase == .open && !peerHasEnded && !hasUnparsed && !isFull) {
            wanted = .readable
        }
        if isBlocked { wanted = EventLoop.Readiness(rawValue: wanted.rawValue | EventLoop.Readiness.writable.rawValue) }
        if wanted.rawValue != interest.rawValue {
            interest = wanted
            loop.rewatch(watch, for: wanted)
        }
        settleDeadline(isIdle: isIdle)
    }

    private func settleDeadline(isIdle: Bool) {
        let kind: Deadline
        let milliseconds: Int64
        if phase == .lingering {
            (kind, milliseconds) = (.linger, configuration.lingerTimeoutMilliseconds)
        } else if isBlocked {
            (kind, milliseconds) = (.write, configuration.writeTimeoutMilliseconds)
        } else if !isIdle {
            (kind, milliseconds) = (.none, 0)
        } else if parser.isBetweenRequests && completed > 0 {
            (kind, milliseconds) = (.idle, configuration.idleTimeoutMilliseconds)
        } else if parser.head != nil {
            (kind, milliseconds) = (.body, configuration.bodyTimeoutMilliseconds)
        } else {
            (kind, milliseconds) = (.header, configuration.headerTimeoutMilliseconds)
        }
        guard kind != deadlineKind || completed != deadlineOrdinal else { return }
        deadlineKind = kind
        deadlineOrdinal = completed
        guard kind != .none else {
            deadlineNanoseconds = Int64.max
            return
        }
        let delay = max(0, milliseconds).multipliedReportingOverflow(by: 1_000_000)
        let due = loop.time.monotonicNanoseconds.addingReportingOverflow(delay.overflow ? 0 : delay.partialValue)
        deadlineNanoseconds = delay.overflow || due.overflow ? Int64.max : due.partialValue
        // A timer that fires before the deadline looks again then; so one request costs no timer.
        if deadlineNanoseconds < timerNanoseconds {
            if let timer { loop.cancel(timer) }
            startTimer(milliseconds)
        }
    }

    private func startTimer(_ milliseconds: Int64) {
        timerNanoseconds = deadlineNanoseconds
        timer = loop.schedule(afterMilliseconds: milliseconds) { [self] in
            timer = nil
            timerNanoseconds = Int64.max
            guard phase != .closed, deadlineNanoseconds != Int64.max else { return }
            let left = deadlineNanoseconds - loop.time.monotonicNanoseconds
            if left <= 0 { expire() } else { startTimer((left + 999_999) / 1_000_000) }
        }
    }

    private func expire() {
        switch deadlineKind {
        case .none: break
        case .linger: close()
        case .idle, .write:
            server.totals.timeouts += 1
            close()
        case .header where parser.isBetweenRequests:
            // Not a byte came: there is no request to answer.
            server.totals.timeouts += 1
            close()
        case .header: fail(HTTPFailure(.requestTimeout, "the header did not arrive in time"))
        case .body: fail(HTTPFailure(.requestTimeout, "the body did not arrive in time"))
        }
    }
}

extension EventLoop.Readiness {
    /// `contains`, without the generic code that an option set of another module is compiled to.
    @inline(__always)
    fileprivate func has(_ other: EventLoop.Readiness) -> Bool { rawValue & other.rawValue != 0 }
}
