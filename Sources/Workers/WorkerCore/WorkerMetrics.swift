internal import EventLoop
package import Jobs
internal import RedisQueue
package import Service

/// A worker's numbers for Prometheus. Labels are lanes and outcomes: never organizations, users or jobs.
///
/// Instruments may be touched from any thread; `copy` runs on the worker's loop, where the queue's own counts live.
package final class WorkerMetrics: Sendable {
    private let outcomes: MetricFamily<Counter>
    private let fetched: [Lane: CopiedCounter]
    private let malformed: [Lane: CopiedCounter]
    private let reclaimed: CopiedCounter
    private let lost: CopiedCounter
    private let promoted: CopiedCounter
    private let settleRetries: CopiedCounter
    private let fetchAge: Gauge
    /// From acceptance to the settlement at this stage.
    let stageLatency: Histogram
    let batchSizes: Histogram
    let breakerOpen: Gauge
    let breakerOpened: Counter
    let inHand: Gauge

    private static let publishMilliseconds: Int64 = 1000
    private static let outcomeNames = [
        "done", "forward", "retry", "later", "unsupported", "dead", "poison", "malformed",
    ]

    package init(_ metrics: Metrics, stage: Stage) {
        let lanes = stage.lanes.map(\.name)
        outcomes = metrics.counters(
            "ratchet_jobs_settled_total", "Jobs settled, by lane and outcome.",
            labels: ["lane": lanes, "outcome": Self.outcomeNames])
        let fetched = metrics.counters("ratchet_jobs_fetched_total", "Jobs fetched.", labels: ["lane": lanes])
        self.fetched = stage.lanes.reduce(into: [:]) { $0[$1] = CopiedCounter(fetched[$1.name]) }
        let outcomes = outcomes
        malformed = stage.lanes.reduce(into: [:]) { $0[$1] = CopiedCounter(outcomes[$1.name, "malformed"]) }
        reclaimed = CopiedCounter(
            metrics.counter("ratchet_jobs_reclaimed_total", "Jobs taken over from dead or stuck workers."))
        lost = CopiedCounter(
            metrics.counter("ratchet_entries_lost_pending_total", "Entries that vanished while pending: data was lost.")
        )
        promoted = CopiedCounter(
            metrics.counter("ratchet_jobs_promoted_total", "Delayed jobs moved back into their lane."))
        settleRetries = CopiedCounter(
            metrics.counter("ratchet_settle_retries_total", "Settle calls that failed and were tried again."))
        fetchAge = metrics.gauge(
            "ratchet_last_fetch_ok_age_seconds", "Age of the last fetch that the queue answered.")
        stageLatency = metrics.histogram(
            "ratchet_stage_latency_seconds", "From acceptance to the settlement at this stage.", .microseconds,
            bounds: Histogram.latencyBounds)
        batchSizes = metrics.histogram(
            "ratchet_batch_jobs", "Jobs handled together.", .plain, bounds: Histogram.sizeBounds)
        breakerOpen = metrics.gauge(
            "ratchet_breaker_open", "1 while a dependency is away and nothing is fetched.")
        breakerOpened = metrics.counter("ratchet_breaker_opened_total", "Times a dependency was found away.")
        inHand = metrics.gauge("ratchet_jobs_in_hand", "Jobs fetched and not settled.")
    }

    func count(_ lane: Lane, _ outcome: String) { outcomes[lane.name, outcome].add() }

    /// Copies what the queue's side of the worker has counted, once a second.
    func copyUntilCancelled(loop: EventLoop, source: RedisJobSource, log: Log) async {
        var buried: Int64 = 0
        while !Task.isCancelled {
            let counters = source.counters
            for (lane, count) in counters.malformed { malformed[lane]?.copy(count) }
            let all = counters.malformed.values.reduce(0, +)
            if all > buried {
                log.warn(
                    "entries were buried", ["count": all - buried, "reason": "malformed: no readable header"])
                buried = all
            }
            for (lane, count) in counters.fetched { fetched[lane]?.copy(count) }
            reclaimed.copy(counters.reclaimed)
            lost.copy(counters.lostWhilePending)
            promoted.copy(counters.promoted)
            settleRetries.copy(counters.settleRetries)
            fetchAge.set(Double(loop.time.monotonicNanoseconds - source.lastFetchOK) / 1e9)
            await loop.sleep(milliseconds: Self.publishMilliseconds)
        }
    }
}
