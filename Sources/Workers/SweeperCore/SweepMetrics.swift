internal import AppleAds
package import Service

/// What a sweeper shows of its work.
package final class SweepMetrics: Sendable {
    /// `none`: no answer came. `other` is what Apple doesn't document.
    private static let statuses = ["200", "400", "404", "408", "425", "429", "5xx", "other", "none"]

    private let asks: MetricFamily<Counter>
    private let askTimes: Histogram
    private let unreadableAnswers: Counter
    private let outcomes: MetricFamily<Counter>
    private let expiredUnready: Counter
    private let lostLeases: Counter
    private let unreadableTokens: Counter
    let held: Gauge
    let paused: Gauge
    let due: Gauge
    let oldestDue: Gauge

    package init(_ metrics: Metrics) {
        asks = metrics.counters(
            "ratchet_adservices_asks_total", "Asks about AdServices tokens, by the status of the answer.",
            labels: ["status": Self.statuses])
        askTimes = metrics.histogram(
            "ratchet_adservices_ask_seconds", "How long an ask took, answered or not.", .microseconds,
            bounds: Histogram.latencyBounds)
        unreadableAnswers = metrics.counter(
            "ratchet_adservices_unreadable_answers_total", "Answers with status 200 that are not Apple's.")
        outcomes = metrics.counters(
            "ratchet_adservices_outcomes_total", "AdServices tokens that ended, by their state.",
            labels: ["state": AdServicesVerdict.Ending.allCases.map(\.rawValue)])
        expiredUnready = metrics.counter(
            "ratchet_adservices_expired_unready_total", "Tokens that expired and whose last answer was 404.")
        lostLeases = metrics.counter(
            "ratchet_adservices_leases_lost_total", "Results thrown away because the token's lease was over.")
        unreadableTokens = metrics.counter(
            "ratchet_adservices_unreadable_tokens_total",
            "Times a token could not be decrypted: RATCHET_SECRET is not the one of the ingress.")
        held = metrics.gauge(
            "ratchet_adservices_held", "1 while no ask goes out because Apple said so or can't be reached.")
        paused = metrics.gauge("ratchet_adservices_paused", "1 while the sweep is paused by hand.")
        due = metrics.gauge("ratchet_adservices_due", "Tokens whose ask is due and that nobody holds, up to 10,000.")
        oldestDue = metrics.gauge(
            "ratchet_adservices_oldest_due_seconds", "For how long the first of them has been due.")
    }

    func asked(_ reply: AdServicesReply, microseconds: Int64) {
        let label =
            switch reply.status {
            case 0: "none"
            case 200, 400, 404, 408, 425, 429: String(reply.status)
            case 500...599: "5xx"
            default: "other"
            }
        asks[label].add()
        askTimes.observe(microseconds)
    }

    func addUnreadableAnswer() { unreadableAnswers.add() }
    func addUnreadableToken() { unreadableTokens.add() }
    func addLostLeases(_ count: Int) { lostLeases.add(count) }

    /// - Parameter lastStatus: before it ended.
    func ended(_ ending: AdServicesVerdict.Ending, lastStatus: Int64?) {
        outcomes[ending.rawValue].add()
        if ending == .expired, lastStatus == 404 { expiredUnready.add() }
    }
}
