import EventLoop
import IngressCore
import Jobs
import Redis
import Service
import TestSupport
import Testing

@Suite(.timeLimit(.minutes(3))) struct ObservationTests {
    @Test(arguments: ["7f3a-1", "550e8400-e29b-41d4-a716-446655440000", "Root=1-67891233-abcdef", "a;b,c\"d\\e{}"])
    func aPlainRequestIDIsTakenOver(id: String) async throws {
        try await IngressRig.run { rig in
            let response = try await rig.identify(IngressRig.identifyBody(), [("X-Request-Id", id)])
            #expect(response.headers.filter { $0.name == "x-request-id" }.map(\.value) == [id])
            let refused = try await rig.identify("{", [("X-Request-Id", id)])
            #expect(refused.first("x-request-id") == id)
        }
    }

    @Test(arguments: ["", "a b", "a|b", "a\tb", "caf\u{e9}", String(repeating: "x", count: 129)])
    func aHostileRequestIDIsReplaced(id: String) async throws {
        try await IngressRig.run { rig in
            let response = try await rig.identify(IngressRig.identifyBody(), [("X-Request-Id", id)])
            expectOK(response)
            let given = try #require(response.first("x-request-id"))
            #expect(given != id)
            #expect(given.wholeMatch(of: /[0-9a-f]{12}-[0-9a-z]+/) != nil)
        }
    }

    @Test func everyRequestHasAnIDOfItsOwn() async throws {
        try await IngressRig.run({ $0.loops = 2 }) { rig in
            var ids: Set<String> = []
            for number in 0..<20 {
                let path = number % 3 == 0 ? "/nowhere" : SDKRoute.identify.path
                let response = try await rig.post(path, IngressRig.identifyBody(), part: number % 2)
                ids.insert(try #require(response.first("x-request-id")))
            }
            #expect(ids.count == 20)
        }
    }

    @Test(arguments: ["", "00-short", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0|"])
    func aTraceThatCantStandInAHeaderIsLeftOut(trace: String) async throws {
        try await IngressRig.run { rig in
            expectOK(try await rig.identify(IngressRig.identifyBody(), [("traceparent", trace)]))
            #expect(try await rig.onlyIdentify().job.header.traceparent.isEmpty)
        }
    }

    // MARK: - Metrics

    /// Copies the counts until a line of the exposition is there; answers the whole text.
    private func exposition(_ rig: IngressRig, _ metrics: Metrics, until line: String) async throws -> String {
        let copier = IngressMetrics(metrics)
        let parts = rig.parts.map(\.ingress)
        let loop = rig.control.loop
        let copying = loop.spawn { await copier.copyUntilCancelled(parts, on: loop) }
        defer { copying.cancel() }
        try await rig.wait("never shown: \(line)\n\(metrics.exposition())") {
            metrics.exposition().contains("\n\(line)\n")
        }
        return metrics.exposition()
    }

    @Test func unknownPathsMakeNoMetricLabels() async throws {
        try await IngressRig.run { rig in
            let client = try await rig.connect()
            for number in 0..<100 { _ = try await client.exchange(IngressRig.request("/p\(number)?q=\(number)", "")) }
            let counters = try await rig.counters()
            #expect(counters.answers.map { "\($0.key.route) \($0.key.status) \($0.value)" } == ["other 404 100"])
            #expect(Array(counters.microseconds.keys) == [.other])
            let empty = Metrics()
            _ = IngressMetrics(empty)
            let metrics = Metrics()
            let shown = try await exposition(
                rig, metrics, until: #"ratchet_http_answers_total{route="other",status="404"} 100"#)
            let lines = shown.split(separator: "\n").count
            #expect(lines == empty.exposition().split(separator: "\n").count)
            #expect(!shown.contains("/p1"))
        }
    }

    @Test func whatAllLoopsCountedIsShown() async throws {
        try await IngressRig.run({
            $0.loops = 2
            $0.unattestedPerMinute = 2
        }) { rig in
            for number in 0..<4 {  // Two are over the limit.
                _ = try await rig.identify(
                    IngressRig.identifyBody("guest", more: #","locale":1"#),
                    [("X-RevenueHog-Unattested", "simulator")], part: number % 2)
            }
            _ = try await rig.attribute(IngressRig.attributeBody(more: #","jws":"no""#), part: 0)
            _ = try await rig.attribute(IngressRig.attributeBody(bundle: "com.nobody.app"), part: 1)
            _ = try await rig.identify("{", part: 0)
            _ = try await rig.identify(IngressRig.identifyBody(), [("Authorization", "x")], part: 1)
            _ = try await rig.connect(0).exchange("GET /api/sdk/v1/identify HTTP/1.1\r\nHost: a\r\n\r\n")
            _ = try await rig.connect(1).exchange("nonsense\r\n\r\n")
            let metrics = Metrics()
            let shown = try await exposition(rig, metrics, until: "ratchet_http_requests_total 9")
            let lines = Set(shown.split(separator: "\n").map(String.init))
            for line in [
                #"ratchet_http_answers_total{route="identify",status="200"} 2"#,
                #"ratchet_http_answers_total{route="identify",status="429"} 2"#,
                #"ratchet_http_answers_total{route="identify",status="400"} 1"#,
                #"ratchet_http_answers_total{route="identify",status="401"} 1"#,
                #"ratchet_http_answers_total{route="identify",status="405"} 1"#,
                #"ratchet_http_answers_total{route="attribute",status="200"} 2"#,
                #"ratchet_calls_refused_total{code="malformed_json"} 1"#,
                #"ratchet_calls_refused_total{code="invalid_token"} 1"#,
                #"ratchet_calls_refused_total{code="rate_limited"} 2"#,
                #"ratchet_calls_refused_total{code="method_not_allowed"} 1"#,
                #"ratchet_ignored_fields_total{field="locale"} 4"#,
                #"ratchet_ignored_fields_total{field="jws"} 1"#,
                #"ratchet_oddities_total{kind="odd_user_id"} 4"#,
                #"ratchet_unattested_writes_total{reason="simulator"} 4"#,
                #"ratchet_unattested_writes_total{reason="none"} 2"#,
                "ratchet_limited_total 2", "ratchet_dropped_writes_total 1", "ratchet_writes_accepted_total 3",
                "ratchet_http_bad_requests_total 1", "ratchet_metric_labels_refused_total 0",
            ] {
                #expect(lines.contains(line), "\(line)")
            }
        }
    }

    @Test func refusalsOfTheQueueAreShown() async throws {
        try await IngressRig.run({ $0.isSeeded = false }) { rig in
            try expectUnavailable(try await rig.identify(IngressRig.identifyBody()))
            #expect(try await rig.counters().lastUnavailable == "the queue is not seeded yet")
            let metrics = Metrics()
            _ = try await exposition(rig, metrics, until: "ratchet_queue_unavailable_total 1")
            #expect(
                metrics.exposition().contains(#"ratchet_http_answers_total{route="identify",status="503"} 1"#))
        }
    }
}
