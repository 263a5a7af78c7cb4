import EventLoop
import Service
import Testing

@Suite struct MetricsTests {
    private let metrics = Metrics()

    /// The exposition without the registry's own counter.
    private func exposed() -> String {
        metrics.exposition().split(separator: "\n", omittingEmptySubsequences: false).dropFirst(3)
            .joined(separator: "\n")
    }

    @Test func countersGaugesAndEscapesAreWrittenExactly() {
        let accepted = metrics.counter("ratchet_accepted_total", "Writes taken.\nBy \\ \"anyone\".")
        let fields = metrics.counters(
            "ratchet_ignored_field_total", "Fields.", labels: ["field": ["locale", "a\"b\\c\nd"], "kind": ["x", "y"]])
        let age = metrics.gauge("ratchet_age_seconds", "Age.")
        metrics.gauge("ratchet_read", "Read.") { .infinity }
        accepted.add()
        accepted.add(41)
        accepted.add(-5)
        fields["locale", "y"].add(3)
        age.set(1.5)
        age.add(1)
        #expect(
            exposed() == #"""
                # HELP ratchet_accepted_total Writes taken.\nBy \\ "anyone".
                # TYPE ratchet_accepted_total counter
                ratchet_accepted_total 42
                # HELP ratchet_ignored_field_total Fields.
                # TYPE ratchet_ignored_field_total counter
                ratchet_ignored_field_total{field="locale",kind="x"} 0
                ratchet_ignored_field_total{field="locale",kind="y"} 3
                ratchet_ignored_field_total{field="a\"b\\c\nd",kind="x"} 0
                ratchet_ignored_field_total{field="a\"b\\c\nd",kind="y"} 0
                # HELP ratchet_age_seconds Age.
                # TYPE ratchet_age_seconds gauge
                ratchet_age_seconds 2.5
                # HELP ratchet_read Read.
                # TYPE ratchet_read gauge
                ratchet_read +Inf

                """#)
    }

    @Test func histogramsAreCumulatedAndExactInSeconds() {
        let latency = metrics.histogram(
            "ratchet_latency_seconds", "Latency.", .microseconds, bounds: [500, 1_000, 2_500_000])
        for value in [-1, 500, 501, 1_000, 2_500_001] as [Int64] { latency.observe(value) }
        let sizes = metrics.histograms("ratchet_batch_jobs", "Batch.", .plain, bounds: [1, 2], labels: ["lane": ["w"]])
        sizes["w"].observe(2)
        #expect(
            exposed() == """
                # HELP ratchet_latency_seconds Latency.
                # TYPE ratchet_latency_seconds histogram
                ratchet_latency_seconds_bucket{le="0.0005"} 2
                ratchet_latency_seconds_bucket{le="0.001"} 4
                ratchet_latency_seconds_bucket{le="2.5"} 4
                ratchet_latency_seconds_bucket{le="+Inf"} 5
                ratchet_latency_seconds_sum 2.502002
                ratchet_latency_seconds_count 5
                # HELP ratchet_batch_jobs Batch.
                # TYPE ratchet_batch_jobs histogram
                ratchet_batch_jobs_bucket{lane="w",le="1"} 0
                ratchet_batch_jobs_bucket{lane="w",le="2"} 1
                ratchet_batch_jobs_bucket{lane="w",le="+Inf"} 1
                ratchet_batch_jobs_sum{lane="w"} 2
                ratchet_batch_jobs_count{lane="w"} 1

                """)
    }

    @Test func labelValuesFromOutsideMakeNoSeries() {
        let fields = metrics.counters("ratchet_ignored_field_total", "Fields.", labels: ["field": ["locale"]])
        for number in 0..<1000 { fields["field\(number)"].add() }
        fields["locale", "extra"].add()
        fields[].add()
        let text = metrics.exposition()
        #expect(text.split(separator: "\n").count { $0.hasPrefix("ratchet_ignored_field_total") } == 1)
        #expect(text.contains("ratchet_ignored_field_total{field=\"locale\"} 0\n"))
        #expect(text.contains("ratchet_metric_labels_refused_total 1002\n"))
    }

    @Test func processMetricsAndTheVersionAreShown() {
        metrics.registerProcess("ratchet-writer", time: ManualTime())
        let text = metrics.exposition()
        #expect(text.contains("ratchet_build_info{process=\"ratchet-writer\",version=\"\(Version.text)\"} 1\n"))
        #expect(text.contains("process_start_time_seconds 1795996800\n"))
        for name in ["process_resident_memory_bytes", "process_cpu_seconds_total"] {
            let value = text.split(separator: "\n").first { $0.hasPrefix("\(name) ") }?.split(separator: " ").last
            #expect((value.flatMap { Double($0) } ?? 0) > 0)
        }
    }

    @Test func bumpsFromManyThreadsAreAllCounted() async {
        let counter = metrics.counter("ratchet_total", "Total.")
        let gauge = metrics.gauge("ratchet_level", "Level.")
        let histogram = metrics.histogram("ratchet_sizes", "Sizes.", .plain, bounds: Histogram.sizeBounds)
        await withTaskGroup(of: Void.self) { group in
            for _ in 0..<8 {
                group.addTask {
                    for _ in 0..<5_000 {
                        counter.add()
                        gauge.add(1)
                        histogram.observe(3)
                    }
                }
            }
        }
        #expect(counter.count == 40_000)
        #expect(gauge.value == 40_000)
        #expect(histogram.counts[2] == 40_000 && histogram.sum == 120_000)
    }

    @Test func faultsOfRegistrationTrapAtBoot() async {
        await #expect(processExitsWith: .failure) {
            let metrics = Metrics()
            _ = metrics.counter("ratchet_total", "Total.")
            _ = metrics.counter("ratchet_total", "Total.")
        }
        await #expect(processExitsWith: .failure) { _ = Metrics().counter("other_total", "Total.") }
    }
}
