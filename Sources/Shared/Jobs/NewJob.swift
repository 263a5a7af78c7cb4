package import Bytes

/// A job on its way into the queue.
package struct NewJob: Sendable {
    package var kind: JobKind
    /// Version of the payload's form.
    package var version: Int
    package var lane: Lane
    /// A validated organization id; it stands in the job's header.
    package var organization: String
    /// What the job is about within its organization (the app user's id, an install id, a key id): it picks the
    /// partition, so all writes of one subject share one clock.
    package var subject: String
    /// Milliseconds since 1970 after which nobody waits for the answer; 0 for none.
    package var expiresMilliseconds: Int64
    package var traceparent: String
    package var replyTo: String
    package var correlationID: String
    /// At most `NewJob.maxPayloadBytes`.
    package var payload: [UInt8]
    package var limit: RateLimit?
    /// When an overloaded queue refuses it.
    package var shedding: Shedding

    /// The order in which an overloaded queue refuses intake: what can be sent again at little loss goes first, calls
    /// that somebody waits for go last. A level refuses its own class and all before it.
    package enum Shedding: Int, Comparable, Sendable, CaseIterable {
        /// Refused at no level: live calls.
        case never = 0
        /// Paywall impressions.
        case impressions = 1
        /// identify: sent again at the next launch anyhow.
        case identify = 2
        /// attribute: money; adservices: many apps send it once.
        case attribute = 3

        package static func < (a: Shedding, b: Shedding) -> Bool { a.rawValue < b.rawValue }
    }

    /// A payload larger than this is a bug of its maker: bodies have smaller caps of their own, and Redis holds every
    /// waiting payload in memory.
    package static let maxPayloadBytes = 256 * 1024

    package init(
        kind: JobKind, version: Int = 1, lane: Lane, organization: String, subject: String, payload: [UInt8],
        limit: RateLimit? = nil, shedding: Shedding = .never, expiresMilliseconds: Int64 = 0, traceparent: String = "",
        replyTo: String = "",
        correlationID: String = ""
    ) {
        self.kind = kind
        self.version = version
        self.lane = lane
        self.organization = organization
        self.subject = subject
        self.payload = payload
        self.limit = limit
        self.shedding = shedding
        self.expiresMilliseconds = expiresMilliseconds
        self.traceparent = traceparent
        self.replyTo = replyTo
        self.correlationID = correlationID
    }
}

/// A limit that the queue keeps while it accepts, so that it is exact across any number of ingress processes.
package struct RateLimit: Sendable {
    /// Names whose limit it is. Only this digest enters a key.
    package var subject: SHA256Digest
    /// Writes a minute, and the burst allowed at once (GCRA).
    package var perMinute: Int
    /// Whether jobs of several partitions share it, as an organization's limit; else it lies where its job goes.
    package var isShared: Bool

    package init(subject: SHA256Digest, perMinute: Int, isShared: Bool = false) {
        self.subject = subject
        self.perMinute = perMinute
        self.isShared = isShared
    }
}

/// What became of a job at the door.
package enum AcceptResult: Equatable, Sendable {
    /// Durable as the chosen mode promises. The stamp names it within its partition.
    case accepted(stamp: Int64)
    /// Over its limit; nothing was stored. A retry helps after that many whole seconds (≥ 1).
    case limited(retryAfterSeconds: Int)
    /// The queue sheds this class of work, or the organization's backlog is full; nothing was stored.
    case shed
    /// Operators drain its lane, kind or organization: intake of it is closed. Nothing was stored; a retry helps once
    /// the drain is over.
    case draining
    /// The queue can't say that it has the job: away, refusing, too slow, or not seeded yet. The job may be stored
    /// all the same; sending it again is safe.
    case unavailable(String)
}

/// Where jobs enter. Implementations are confined to the caller's event loop.
package protocol JobSink: Sendable {
    /// Puts a job into its lane, and tells `completion`, once and on the loop, only when the queue has it, or why it has
    /// not: every failure is an answer that the caller must give to somebody. It may be told before this returns.
    func accept(_ job: NewJob, completion: @escaping @Sendable (AcceptResult) -> Void)
}

extension JobSink {
    /// The same, for those who wait in a task.
    package func accept(_ job: NewJob) async -> AcceptResult {
        await withUnsafeContinuation { continuation in
            accept(job) { continuation.resume(returning: $0) }
        }
    }
}
