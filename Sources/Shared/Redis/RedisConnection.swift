internal import CHiredis
internal import EventLoop
internal import Glibc

/// One connected socket: writes commands in order, once per turn of the loop, and hands each reply to the command it
/// belongs to. It ends once and for good; a link makes the next one.
///
/// Confined to its loop: every method is called there, which `send` and `close` check.
final class RedisConnection {
    private let loop: EventLoop
    private let fd: Int32
    private let configuration: RedisClientConfiguration
    private let reader: ReplyReader
    private var watch: EventLoop.WatchToken?
    private var pending = PendingQueue()
    private var output: [UInt8] = []
    private var sentBytes = 0
    private var flushScheduled = false
    private var waitsForSpace = false
    private var timer: EventLoop.TimerToken?
    private var timerDeadline = Int64.max
    private var bytesOfReply = 0
    private(set) var isOpen = true

    /// Told once, when the connection ended for a reason other than `close`. Pending commands have failed by then.
    var onLoss: ((RedisError) -> Void)?
    /// Takes replies that no command waits for: the messages of a subscription. Without it they end the connection.
    var onPush: ((RedisValue) -> Void)?
    /// Counts of bytes read, for a sign of life.
    private(set) var receivedBytes: UInt64 = 0

    /// Reads per readiness event: enough to empty a socket buffer, few enough to leave the loop to others.
    private static let readsPerEvent = 8
    /// An output buffer that grew above this is given back once it is sent.
    private static let keptOutputBytes = 1 << 20

    /// Takes ownership of a connected, non-blocking socket, also when it fails.
    init?(loop: EventLoop, fd: Int32, configuration: RedisClientConfiguration) {
        guard let reader = ReplyReader() else {
            chiredis_close(fd)
            return nil
        }
        self.loop = loop
        self.fd = fd
        self.configuration = configuration
        self.reader = reader
        watch = loop.watch(fd, for: .readable) { [weak self] readiness in self?.ready(readiness) }
        if watch == nil {
            isOpen = false
            chiredis_close(fd)
            return nil
        }
    }

    /// Only reached open when a client was dropped without `close`; its last reference may go on any thread.
    deinit {
        guard isOpen, let watch else { return }
        loop.execute { [loop, fd, timer] in
            loop.unwatch(watch)
            if let timer { loop.cancel(timer) }
            chiredis_close(fd)
        }
    }

    var pendingCount: Int { pending.count }

    /// Whether commands of this many more replies fit the limits.
    func hasRoom(for count: Int) -> Bool {
        pending.count + count <= configuration.maxInFlight && output.count - sentBytes <= configuration.maxUnsentBytes
    }

    // MARK: - Writing

    /// Queues one command; it leaves at the end of this turn. A nil completion expects no reply of its own.
    func send(
        _ arguments: [RedisArgument], timeoutMilliseconds: Int64, completion: PendingCommand.Completion?
    ) {
        loop.preconditionInLoop()
        CommandEncoder.append(arguments, to: &output)
        if let completion {
            let deadline = Self.deadline(loop, afterMilliseconds: timeoutMilliseconds)
            pending.append(PendingCommand(completion: completion, deadline: deadline))
            if deadline < timerDeadline { arm(deadline) }
        }
        if !flushScheduled && !waitsForSpace {
            flushScheduled = true
            loop.atTurnEnd { [weak self] in
                guard let self else { return }
                flushScheduled = false
                flush()
            }
        }
    }

    private func flush() {
        guard isOpen, sentBytes < output.count else { return }
        let count = output.withUnsafeBytes { bytes in
            // In bounds: sentBytes < count was checked above.
            chiredis_send(fd, bytes.baseAddress! + sentBytes, UInt64(bytes.count - sentBytes))
        }
        if count < 0 && count != -Int64(chiredis_EAGAIN) {
            // What the server said before it hung up may still wait to be read, the reason for it included.
            receive()
            lose(Self.lost(errno: Int32(clamping: -count)))
            return
        }
        sentBytes += Int(max(0, count))
        if sentBytes == output.count {
            sentBytes = 0
            if output.capacity > Self.keptOutputBytes { output = [] } else { output.removeAll(keepingCapacity: true) }
        } else if sentBytes > Self.keptOutputBytes {
            output.removeFirst(sentBytes)
            sentBytes = 0
        }
        let blocked = !output.isEmpty
        if blocked != waitsForSpace, let watch {
            waitsForSpace = blocked
            loop.rewatch(watch, for: blocked ? [.readable, .writable] : .readable)
        }
    }

    // MARK: - Reading

    private func ready(_ readiness: EventLoop.Readiness) {
        if readiness.contains(.readable) || readiness.contains(.hangup) { receive() }
        if isOpen && readiness.contains(.writable) { flush() }
    }

    private func receive() {
        for _ in 0..<Self.readsPerEvent where isOpen {
            switch reader.receive(from: fd) {
            case .bytes(let count):
                receivedBytes &+= UInt64(count)
                bytesOfReply += count
                deliver()
                if bytesOfReply > configuration.maxReplyBytes {
                    lose(RedisError(code: .protocolViolation, message: "a reply exceeds the limit of bytes"))
                }
            case .none:
                return
            case .endOfStream:
                lose(RedisError(code: .unavailable, message: "the server closed the connection"))
            case .failed(let code):
                lose(Self.lost(errno: code))
            }
        }
    }

    private func deliver() {
        do throws(RedisError) {
            while isOpen, let value = try reader.next() {
                bytesOfReply = 0
                let error: RedisError? = if case .error(let error) = value { RedisError(error) } else { nil }
                if let command = pending.popFirst() {
                    command.complete(error.map { .failure($0) } ?? .success(value))
                } else if let onPush {
                    onPush(value)
                } else {
                    // Redis says why it closes a connection (too many clients, for one) without being asked.
                    throw error ?? RedisError(code: .protocolViolation, message: "a reply that nobody asked for")
                }
                if let error, error.leavesServer, isOpen { lose(error) }
            }
        } catch {
            lose(error)
        }
    }

    // MARK: - Deadlines

    /// One timer for the whole connection: commands mostly share one timeout, so it is set about once per timeout and
    /// not once per command.
    private func arm(_ deadline: Int64) {
        if let timer { loop.cancel(timer) }
        timerDeadline = deadline
        let delay = max(0, deadline - loop.time.monotonicNanoseconds) / 1_000_000
        timer = loop.schedule(afterMilliseconds: delay + 1) { [weak self] in self?.checkDeadlines() }
    }

    private func checkDeadlines() {
        timer = nil
        timerDeadline = .max
        // After a stall of this process the replies may be there already, unread.
        if isOpen { receive() }
        guard isOpen, let earliest = pending.earliestDeadline else { return }
        if earliest <= loop.time.monotonicNanoseconds {
            lose(RedisError(code: .timeout, message: "no reply before the deadline"))
        } else {
            arm(earliest)
        }
    }

    static func deadline(_ loop: EventLoop, afterMilliseconds milliseconds: Int64) -> Int64 {
        let delay = max(0, milliseconds).multipliedReportingOverflow(by: 1_000_000)
        let sum = loop.time.monotonicNanoseconds.addingReportingOverflow(delay.overflow ? .max : delay.partialValue)
        return sum.overflow ? .max : sum.partialValue
    }

    // MARK: - Ending

    /// Ends the connection; every pending command fails with the error. Not told to `onLoss`.
    func close(_ error: RedisError) {
        loop.preconditionInLoop()
        guard isOpen else { return }
        isOpen = false
        if let timer { loop.cancel(timer) }
        if let watch { loop.unwatch(watch) }
        timer = nil
        watch = nil
        chiredis_close(fd)
        output = []
        sentBytes = 0
        let now = loop.time.monotonicNanoseconds
        for command in pending.removeAll() { command.complete(.failure(Self.fate(of: command, after: error, at: now))) }
    }

    /// Those whose own deadline has passed timed out; the others were only on the same connection.
    private static func fate(of command: PendingCommand, after error: RedisError, at now: Int64) -> RedisError {
        switch error.code {
        case .closed, .unavailable: error
        case .timeout where command.deadline <= now: error
        case .protocolViolation: error
        default: RedisError(code: .unavailable, message: "connection dropped: \(error.message)")
        }
    }

    private func lose(_ error: RedisError) {
        guard isOpen else { return }
        let onLoss = onLoss
        close(error)
        onLoss?(error)
    }

    private static func lost(errno code: Int32) -> RedisError {
        RedisError(code: .unavailable, message: "connection lost: \(systemMessage(code))")
    }

    static func systemMessage(_ code: Int32) -> String { String(cString: strerror(code)) }
}
