/// A job in a worker's hands. It stays pending in the queue until it is settled.
package struct FetchedJob: Sendable {
    package var lane: Lane
    package var partition: Int
    /// The entry's id in its stream.
    package var entryID: String
    package var header: JobHeader
    package var payload: [UInt8]
    /// How often it was handed out, this time included. More than once without an answer makes it a suspect.
    package var deliveries: Int

    package init(
        lane: Lane, partition: Int, entryID: String, header: JobHeader, payload: [UInt8], deliveries: Int
    ) {
        self.lane = lane
        self.partition = partition
        self.entryID = entryID
        self.header = header
        self.payload = payload
        self.deliveries = deliveries
    }
}

/// What a handler says of one job (queue.md §4). Whether a dependency is away is said by throwing `DependencyDown`
/// for the batch: it is not the job's fault.
package enum JobOutcome: Sendable, Equatable {
    /// Its effects are durable, or were already.
    case done
    /// As `done`, and somebody may wait for this answer.
    case answered(payload: [UInt8])
    /// This stage is through; the next one gets the payload.
    case forward(to: Lane, payload: [UInt8])
    /// It can never succeed. Kept as a dead letter.
    case permanent(reason: String, text: String)
    /// It may succeed when tried again; costs an attempt.
    case transient(text: String)
    /// Not before this many milliseconds from now; costs no attempt.
    case later(milliseconds: Int64)
    /// Made by a newer version: put aside for a worker that knows it.
    case unsupported
}

/// A server that jobs need is away, frozen or refusing. Nothing is wrong with the jobs: the worker stops fetching,
/// keeps what it holds and tries again.
package struct DependencyDown: Error, Sendable {
    /// Which one: `postgres`, `redis`.
    package let dependency: String
    package let text: String
    package init(_ dependency: String, _ text: String) {
        self.dependency = dependency
        self.text = text
    }
}

/// How a job leaves a worker's hands.
package struct Settlement: Sendable {
    package enum Action: Sendable {
        case done
        case forward(to: Lane, payload: [UInt8])
        /// Back into the lane after a delay; `attempts` is the header's new count.
        case retry(afterMilliseconds: Int64, attempts: Int)
        /// Out of the way, as it is, while its kind or organization is paused.
        case park
        /// Dead letter: a fixed reason word and up to 1 KB of text for people.
        case dead(reason: String, text: String)
    }
    package var job: FetchedJob
    package var action: Action
    /// Goes to whoever waits for it, before the job is settled: the effects are durable by then.
    package var answer: [UInt8]?

    package init(_ job: FetchedJob, _ action: Action, answer: [UInt8]? = nil) {
        self.job = job
        self.action = action
        self.answer = answer
    }
}

/// Where a worker gets its jobs. Implementations are confined to the caller's event loop.
package protocol JobSource: Sendable {
    /// At most that many jobs, live lanes first. Waits up to about a second for the first one; empty when there was
    /// none, when the queue refuses (paused, not seeded) or is away: the caller just asks again.
    func fetch(atMost count: Int) async -> [FetchedJob]
    /// Notes that a suspected job (delivered more than once without an answer) starts alone, before it runs.
    /// - Returns: how many starts alone, this one included, have not ended; nil when the queue did not answer, and the
    ///   job must then not be started now.
    func startAlone(_ job: FetchedJob) async -> Int?
    /// Takes back the last note of `startAlone`: the worker stopped while a dependency was away, and the job has ended
    /// nobody. One try.
    func forgetStart(_ job: FetchedJob) async
    /// Sends an answer to the process that waits for it. One try: an answer that gets lost is asked for again, and every
    /// kind of ask is safe to repeat.
    func answer(_ job: FetchedJob, _ payload: [UInt8]) async
    /// Ends the queue's hold on these jobs. Kept and tried again until it succeeds; returns when it has, or when
    /// the source is closed (the jobs are then delivered again).
    func settle(_ settlements: [Settlement]) async
}
