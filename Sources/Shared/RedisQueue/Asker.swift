package import EventLoop
package import Jobs
package import Redis

/// Calls that wait for their job's answer (queue.md §5): one channel a process, a waiter registered before its job is
/// enqueued, a deadline on each, a bound on all.
///
/// `@unchecked Sendable`: every property is touched on the loop's thread alone, which each entry point checks.
package final class Asker: @unchecked Sendable {
    /// What became of an ask.
    package enum Answer: Sendable, Equatable {
        case answered([UInt8])
        /// Over its limit; nothing was enqueued.
        case limited(retryAfterSeconds: Int)
        /// The queue refused, or nobody answered in time. The job may still run; asking again is safe.
        case unavailable(String)
    }

    /// Why an ask is `unavailable` when its job was taken and no answer came.
    package static let nobodyAnswered = "nobody answered in time"

    /// Between correlation id and payload of an answer; no id holds it.
    static let separator = UInt8(ascii: "\n")

    /// Calls that wait now.
    package var waiting: Int { waiters.count }
    /// Answers that came after their deadline, or twice.
    package private(set) var ignored: Int64 = 0

    private struct Waiter {
        let continuation: UnsafeContinuation<Answer, Never>
        let timer: EventLoop.TimerToken
    }

    private let loop: EventLoop
    private let client: RedisClient
    private let sink: any JobSink
    private let keys: QueueKeys
    private let process: String
    private let mostWaiting: Int
    private var waiters: [String: Waiter] = [:]
    private var last: UInt64 = 0

    /// - Parameters:
    ///   - process: this process' unique name: answers go to its channel.
    ///   - mostWaiting: above it calls are refused at once; each holds a connection of a caller.
    package init(
        loop: EventLoop, client: RedisClient, sink: any JobSink, keys: QueueKeys, process: String,
        mostWaiting: Int = 1000
    ) {
        self.loop = loop
        self.client = client
        self.sink = sink
        self.keys = keys
        self.process = process
        self.mostWaiting = mostWaiting
    }

    /// Begins to receive answers, until the client is closed or the task cancelled. Comes before anything is asked.
    @discardableResult
    package func start() -> Task<Void, Never> {
        loop.preconditionInLoop()
        let messages = client.subscribe(keys.reply(process))
        return loop.spawn { [weak self] in
            for await message in messages { self?.receive(message) }
        }
    }

    /// Whether answers can arrive: the channel is subscribed.
    package var isListening: Bool { client.isSubscribed }

    /// Enqueues a job on a live lane and waits for its answer.
    /// - Parameter job: its reply-to, correlation id and expiry are set here.
    package func ask(_ job: NewJob, timeoutMilliseconds: Int64) async -> Answer {
        loop.preconditionInLoop()
        guard waiters.count < mostWaiting else { return .unavailable("too many calls wait for an answer") }
        guard isListening else { return .unavailable("answers can't be received now") }
        last += 1
        var job = job
        job.replyTo = process
        job.correlationID = String(last, radix: 36)
        job.expiresMilliseconds = loop.time.wallMilliseconds + timeoutMilliseconds
        let (asked, id) = (job, job.correlationID)
        return await withUnsafeContinuation { continuation in
            let timer = loop.schedule(afterMilliseconds: timeoutMilliseconds) { [self] in
                finish(id, .unavailable(Self.nobodyAnswered))
            }
            waiters[id] = Waiter(continuation: continuation, timer: timer)
            sink.accept(asked) { [self] result in
                switch result {
                case .accepted: break
                case .limited(let seconds): finish(id, .limited(retryAfterSeconds: seconds))
                case .shed: finish(id, .unavailable("the queue refuses for now"))
                case .draining: finish(id, .unavailable("operators drain it: intake is closed"))
                case .unavailable(let why): finish(id, .unavailable(why))
                }
            }
        }
    }

    private func receive(_ message: [UInt8]) {
        guard let cut = message.firstIndex(of: Self.separator) else { return }
        let id = String(decoding: message[..<cut], as: UTF8.self)
        if waiters[id] == nil { ignored += 1 }
        finish(id, .answered(Array(message[(cut + 1)...])))
    }

    /// Ends a wait; the first ending counts, every later one finds nobody.
    private func finish(_ id: String, _ answer: Answer) {
        guard let waiter = waiters.removeValue(forKey: id) else { return }
        loop.cancel(waiter.timer)
        waiter.continuation.resume(returning: answer)
    }
}
