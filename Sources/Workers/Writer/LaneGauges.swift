internal import Jobs
internal import RedisQueue
internal import Service

/// What lies in the lanes, of the whole queue: what an autoscaler goes by. Not a number while Redis does not say: no
/// answer is not an empty queue.
struct LaneGauges: Sendable {
    private let waiting: MetricFamily<Gauge>
    private let pending: MetricFamily<Gauge>
    private let due: MetricFamily<Gauge>
    private let oldest: MetricFamily<Gauge>

    init(_ metrics: Metrics) {
        let lanes = Lane.allCases.map(\.name)
        waiting = metrics.gauges(
            "ratchet_jobs_waiting", "Jobs that no worker has, in the whole queue.", labels: ["lane": lanes])
        pending = metrics.gauges(
            "ratchet_jobs_pending", "Jobs in the hands of workers, in the whole queue.", labels: ["lane": lanes])
        due = metrics.gauges("ratchet_jobs_due", "Delayed jobs, in the whole queue.", labels: ["lane": lanes])
        oldest = metrics.gauges(
            "ratchet_oldest_waiting_seconds", "Age of the oldest job that no worker has; 0 when none waits.",
            labels: ["lane": lanes])
        forget()
    }

    func set(_ lanes: [LaneStatistics]) {
        for lane in lanes {
            let name = lane.lane.name
            waiting[name].set(Double(lane.waiting))
            pending[name].set(Double(lane.pending))
            due[name].set(Double(lane.due))
            oldest[name].set(Double(lane.oldestWaitingMilliseconds ?? 0) / 1000)
        }
    }

    func forget() {
        for lane in Lane.allCases {
            for gauges in [waiting, pending, due, oldest] { gauges[lane.name].set(.nan) }
        }
    }
}
