internal import EventLoop
internal import Postgres
internal import Redis
internal import RedisQueue
internal import Service
internal import Store

/// Once a day, removes old owner writes that change nothing. Every writer does this; they share one pass, which goes on
/// where the last one stopped.
struct OwnerWriteCompactor: Sendable {
    let loop: EventLoop
    let queue: QueueStatistics
    let orders: QueueOrders
    let copier: DeadLetterCopier
    let postgres: PostgresClient
    let log: Log
    let metrics: WriterMetrics

    /// How old a row must be to go.
    static let keptMicroseconds: Int64 = 30 * 86_400_000_000
    /// Work that waited for so long holds passes up, until so long after it was last seen: by then what was held by a
    /// pause has been worked off, too.
    static let oldWorkMicroseconds: Int64 = 86_400_000_000
    /// How often to look at the queue and whether a pass is due.
    private static let lookMilliseconds: Int64 = 60_000
    /// Between two steps, so that a pass takes a small part of Postgres' time.
    private static let restMilliseconds: Int64 = 100

    func runUntilCancelled() async {
        while !Task.isCancelled {
            var more = false
            do {
                more = try await work()
            } catch let error as RedisError {
                log.limited(.warn, "redis is away; compaction waits", ["text": error.message])
            } catch let error as PostgresError {
                log.limited(.warn, "postgres is away; compaction waits", ["text": error.message])
            } catch {
                log.limited(.error, "owner writes could not be compacted", ["text": "\(error)"])
            }
            if !more { await loop.sleep(milliseconds: Self.lookMilliseconds) }
        }
    }

    /// Works at the pass that is due, for a minute at the most.
    /// - Returns: whether it is still under way.
    func work() async throws -> Bool {
        if try await queueHoldsOldWork() {
            let time = loop.time.wallMicroseconds + Self.oldWorkMicroseconds
            try await postgres.withConnection { connection throws(PostgresError) in
                try await OwnerWriteCompaction.postpone(to: time, connection)
            }
            log.limited(.info, "compaction waits; the queue holds jobs of more than a day")
            return false
        }
        let due = try await postgres.withConnection { connection throws(PostgresError) in
            try await OwnerWriteCompaction.isDue(nowMicroseconds: loop.time.wallMicroseconds, connection)
        }
        guard due else { return false }
        let cutoff = try await cutoff()
        let end = loop.time.wallMilliseconds + Self.lookMilliseconds
        var looked = 0
        var removed = 0
        var ended = false
        // A pass that fails in the middle says what it had done.
        defer {
            if removed > 0 || ended {
                log.info("owner writes compacted", ["removed": removed, "looked": looked, "pass_ended": ended])
            }
        }
        while !Task.isCancelled, loop.time.wallMilliseconds < end {
            let step = try await postgres.withConnection { connection throws(PostgresError) in
                try await OwnerWriteCompaction.step(
                    cutoff: cutoff, nowMicroseconds: loop.time.wallMicroseconds, connection)
            }
            guard let step else { return false }
            looked += step.looked
            removed += step.removed
            metrics.addCompacted(step.removed)
            ended = step.endedPass
            if ended { return false }
            await loop.sleep(milliseconds: Self.restMilliseconds)
        }
        return true
    }

    /// Whether a job may wait that is far older than its place in the queue tells: a long pause, what one left behind, or
    /// a backlog.
    private func queueHoldsOldWork() async throws(RedisError) -> Bool {
        let old = (loop.time.wallMicroseconds - Self.oldWorkMicroseconds) / 1000
        if try await orders.list().contains(where: { $0.at < old }) { return true }
        return try await queue.lanes().contains {
            $0.parked > 0 || loop.time.wallMilliseconds - ($0.oldestWaitingMilliseconds ?? 0) < old
        }
    }

    /// Thirty days ago, or the stamp of the oldest dead letter if that is earlier: it may be put back, or is on its way.
    private func cutoff() async throws -> Int64 {
        // What died this minute is not in Postgres yet.
        while try await copier.copy() {}
        let partitions = copier.partitions
        let oldest = try await postgres.withConnection { connection throws(PostgresError) in
            try await DeadLetters.oldestStamp(partitions: partitions, connection)
        }
        let cutoff = loop.time.wallMicroseconds - Self.keptMicroseconds
        return min(cutoff, oldest ?? cutoff)
    }
}
