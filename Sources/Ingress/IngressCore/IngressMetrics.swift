package import EventLoop
internal import HTTP
internal import RedisQueue
package import Service
internal import Wire

/// The ingress' numbers for Prometheus, copied from the loops' own counts once a second.
package final class IngressMetrics: Sendable {
    private let answers: [IngressCounters.Answer: CopiedCounter]
    private let otherAnswers: CopiedCounter
    private let latency: [String: CopiedCounter]
    private let refused: [String: CopiedCounter]
    private let ignored: [String: CopiedCounter]
    private let oddities: [String: CopiedCounter]
    private let unattested: [String: CopiedCounter]
    private let enrolments: [String: CopiedCounter]
    private let enrolmentRefusals: [String: CopiedCounter]
    private let tokenLooks: [String: CopiedCounter]
    private let limited: CopiedCounter
    private let addressLimited: CopiedCounter
    private let noDirectory: CopiedCounter
    private let dropped: CopiedCounter
    private let accepted: CopiedCounter
    private let unavailable: CopiedCounter
    private let shed: [String: CopiedCounter]
    private let calls: CopiedCounter
    private let requests: CopiedCounter
    private let badRequests: CopiedCounter
    private let timeouts: CopiedCounter
    private let refusedConnections: CopiedCounter
    private let connections: Gauge
    private let waiting: Gauge

    private static let publishMilliseconds: Int64 = 1000
    private static let statuses = [200, 204, 400, 401, 404, 405, 409, 413, 429, 503]

    private static let refusals =
        ["challenge", "challenge_used", "already_enrolled"] + AttestationReason.allCases.map(\.rawValue)

    package init(_ metrics: Metrics) {
        func single(_ name: String, _ help: String) -> CopiedCounter { CopiedCounter(metrics.counter(name, help)) }
        func family(_ name: String, _ help: String, _ label: String, _ values: [String]) -> [String: CopiedCounter] {
            let counters = metrics.counters(name, help, labels: [label: values])
            return values.reduce(into: [:]) { $0[$1] = CopiedCounter(counters[$1]) }
        }
        let byStatus = metrics.counters(
            "ratchet_http_answers_total", "Answers by route and status.",
            labels: ["route": SDKRoute.allCases.map(\.rawValue), "status": Self.statuses.map(String.init) + ["other"]])
        var answers: [IngressCounters.Answer: CopiedCounter] = [:]
        for route in SDKRoute.allCases {
            for status in Self.statuses {
                answers[.init(route: route, status: status)] = CopiedCounter(byStatus[route.rawValue, String(status)])
            }
        }
        self.answers = answers
        otherAnswers = CopiedCounter(byStatus["other", "other"])
        latency = family(
            "ratchet_http_answer_microseconds_total", "Time spent answering, waiting for the queue included.", "route",
            SDKRoute.allCases.map(\.rawValue))
        refused = family(
            "ratchet_calls_refused_total",
            "Calls refused, by error code. What was no HTTP we answer is in ratchet_http_bad_requests_total.", "code",
            WireError.Code.allCases.filter { $0 != .malformedRequest }.map(\.rawValue))
        ignored = family(
            "ratchet_ignored_fields_total", "Optional fields that were unusable.", "field",
            OptionalField.allCases.map(\.rawValue))
        oddities = family(
            "ratchet_oddities_total", "Accepted values that look like a mistake of the app.", "kind",
            Oddity.allCases.map(\.rawValue))
        unattested = family(
            "ratchet_unattested_writes_total", "Writes without a device token, by the reason given.", "reason",
            UnattestedReason.allCases.map(\.rawValue) + ["none"])
        enrolments = family(
            "ratchet_enrolments_total", "Steps of device enrolments.", "step", EnrolmentStep.allCases.map(\.rawValue))
        enrolmentRefusals = family(
            "ratchet_enrolments_refused_total", "Enrolments refused for what the device sent.", "reason",
            Self.refusals)
        tokenLooks = family(
            "ratchet_token_looks_total", "Device tokens looked up, by who knew.", "source",
            ["memory", "redis", "asked"])
        limited = single("ratchet_limited_total", "Writes over their device's limit.")
        addressLimited = single("ratchet_address_limited_total", "Calls over their address' limit.")
        noDirectory = single("ratchet_no_directory_total", "Writes answered 503 for want of the app directory.")
        dropped = single("ratchet_dropped_writes_total", "Writes whose bundle is nobody's, or several's.")
        accepted = single("ratchet_writes_accepted_total", "Writes that the queue took.")
        unavailable = single("ratchet_queue_unavailable_total", "Writes that the queue could not take.")
        shed = family(
            "ratchet_writes_shed_total",
            "Writes refused with 503 by the queue: overload or a full backlog, or a drain.",
            "reason", ["shed", "draining"])
        calls = single("ratchet_accept_calls_total", "Calls to the queue; accepted ÷ calls is the batch size.")
        requests = single("ratchet_http_requests_total", "Requests read.")
        badRequests = single("ratchet_http_bad_requests_total", "Requests that are no HTTP we answer.")
        timeouts = single("ratchet_http_timeouts_total", "Connections closed for slowness.")
        refusedConnections = single("ratchet_http_connections_refused_total", "Connections over a limit.")
        connections = metrics.gauge("ratchet_http_connections", "Open connections.")
        waiting = metrics.gauge("ratchet_accept_waiting", "Writes that wait for the queue now.")
    }

    /// Copies the sums of all loops once a second, until cancelled.
    package func copyUntilCancelled(_ loops: [IngressLoop], on loop: EventLoop) async {
        while !Task.isCancelled {
            await copy(loops)
            await loop.sleep(milliseconds: Self.publishMilliseconds)
        }
    }

    private struct Snapshot: Sendable {
        var counters = IngressCounters()
        var http = HTTPServerCounters()
        var dropped: Int64 = 0
        var accepted: Int64 = 0
        var unavailable: Int64 = 0
        var shed: Int64 = 0
        var draining: Int64 = 0
        var calls: Int64 = 0
        var waiting = 0
        var looks: [String: Int64] = [:]
    }

    private func copy(_ loops: [IngressLoop]) async {
        var sum = Snapshot()
        for part in loops {
            let snapshot = try? await part.loop.run {
                Snapshot(
                    counters: part.handler.counters, http: part.server.counters, dropped: part.drops.total,
                    accepted: part.sink.accepted, unavailable: part.sink.unavailable, shed: part.sink.shed,
                    draining: part.sink.draining, calls: part.sink.calls, waiting: part.sink.waiting,
                    looks: [
                        "memory": part.devices.fromMemory, "redis": part.devices.fromRedis,
                        "asked": part.devices.asked,
                    ])
            }
            guard let snapshot else { continue }
            sum.counters = sum.counters + snapshot.counters
            sum.http.connections += snapshot.http.connections
            sum.http.requests += snapshot.http.requests
            sum.http.badRequests += snapshot.http.badRequests
            sum.http.timeouts += snapshot.http.timeouts
            sum.http.refused += snapshot.http.refused
            sum.dropped += snapshot.dropped
            sum.accepted += snapshot.accepted
            sum.unavailable += snapshot.unavailable
            sum.shed += snapshot.shed
            sum.draining += snapshot.draining
            sum.calls += snapshot.calls
            sum.waiting += snapshot.waiting
            sum.looks.merge(snapshot.looks, uniquingKeysWith: +)
        }
        publish(sum)
    }

    private func publish(_ sum: Snapshot) {
        var others: Int64 = 0
        for (answer, count) in sum.counters.answers {
            if let counter = answers[answer] { counter.copy(count) } else { others += count }
        }
        otherAnswers.copy(others)
        for (pairs, counters) in [
            (sum.counters.refused, refused),
            (sum.counters.ignoredFields, ignored), (sum.counters.oddities, oddities),
            (sum.counters.unattested, unattested), (sum.counters.enrolmentRefusals, enrolmentRefusals),
            (sum.looks, tokenLooks),
        ] {
            for (name, count) in pairs { counters[name]?.copy(count) }
        }
        for (route, sum) in sum.counters.microseconds { latency[route.rawValue]?.copy(sum) }
        for (step, count) in sum.counters.enrolments { enrolments[step.rawValue]?.copy(count) }
        limited.copy(sum.counters.limited)
        addressLimited.copy(sum.counters.addressLimited)
        noDirectory.copy(sum.counters.noDirectory)
        dropped.copy(sum.dropped)
        accepted.copy(sum.accepted)
        unavailable.copy(sum.unavailable)
        shed["shed"]?.copy(sum.shed)
        shed["draining"]?.copy(sum.draining)
        calls.copy(sum.calls)
        requests.copy(sum.http.requests)
        badRequests.copy(sum.http.badRequests)
        timeouts.copy(sum.http.timeouts)
        refusedConnections.copy(sum.http.refused)
        connections.set(Int(sum.http.connections))
        waiting.set(sum.waiting)
    }
}
