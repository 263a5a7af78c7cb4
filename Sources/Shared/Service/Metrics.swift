internal import CLinux
package import EventLoop
internal import Synchronization

/// The metrics of a process. Everything is registered at boot with constants of the source; a wrong or repeated name
/// or more than 1,000 series of one name is a fault of the program and traps there.
///
/// Names are written in full, with their `ratchet_` prefix, so that they can be found by searching. Labels are lane,
/// kind, outcome and the like, from closed lists; never an organization, a user or a job.
package final class Metrics: Sendable {
    enum Kind: String, Sendable { case counter, gauge, histogram }

    struct Family: Sendable {
        let name: String
        let help: String
        let kind: Kind
        /// Appends the sample lines.
        let write: @Sendable (inout Exposition) -> Void
    }

    private static let mostSeries = 1_000
    private let families = Mutex<[Family]>([])
    private let refused = Counter()

    package init() {
        register("ratchet_metric_labels_refused_total", "Label values that are not in their list.", .counter) {
            [refused] exposition in exposition.sample(refused.count)
        }
    }

    // MARK: - Registration

    package func counter(_ name: String, _ help: String) -> Counter {
        let counter = Counter()
        register(name, help, .counter) { $0.sample(counter.count) }
        return counter
    }

    /// - Parameter labels: each label with every value it can have.
    package func counters(
        _ name: String, _ help: String, labels: KeyValuePairs<String, [String]>
    ) -> MetricFamily<Counter> {
        let family = family(labels) { Counter() }
        register(name, help, .counter) { exposition in
            for (labels, counter) in family.series { exposition.sample(counter.count, labels) }
        }
        return family
    }

    package func gauge(_ name: String, _ help: String) -> Gauge {
        let gauge = Gauge()
        register(name, help, .gauge) { $0.sample(gauge.value) }
        return gauge
    }

    /// - Parameter labels: each label with every value it can have.
    package func gauges(_ name: String, _ help: String, labels: KeyValuePairs<String, [String]>) -> MetricFamily<Gauge>
    {
        let family = family(labels) { Gauge() }
        register(name, help, .gauge) { exposition in
            for (labels, gauge) in family.series { exposition.sample(gauge.value, labels) }
        }
        return family
    }

    /// A gauge that is read when it is scraped.
    /// - Parameter read: called on the operations loop; must not wait.
    package func gauge(_ name: String, _ help: String, read: @escaping @Sendable () -> Double) {
        register(name, help, .gauge) { $0.sample(read()) }
    }

    package func histogram(_ name: String, _ help: String, _ unit: Histogram.Unit, bounds: [Int64]) -> Histogram {
        let histogram = Histogram(unit: unit, bounds: bounds)
        register(name, help, .histogram) { $0.samples(histogram, []) }
        return histogram
    }

    /// - Parameter labels: each label with every value it can have.
    package func histograms(
        _ name: String, _ help: String, _ unit: Histogram.Unit, bounds: [Int64],
        labels: KeyValuePairs<String, [String]>
    ) -> MetricFamily<Histogram> {
        let family = family(labels) { Histogram(unit: unit, bounds: bounds) }
        register(name, help, .histogram) { exposition in
            for (labels, histogram) in family.series { exposition.samples(histogram, labels) }
        }
        return family
    }

    /// Registers what every process shows: `ratchet_build_info`, and start time, memory and CPU time under the names
    /// that Prometheus' own clients use.
    package func registerProcess(_ process: String, time: any TimeSource) {
        let build = gauges(
            "ratchet_build_info", "Version of the running program.",
            labels: ["process": [process], "version": [Version.text]])
        build[process, Version.text].set(1)
        let start = Double(time.wallMilliseconds) / 1000
        gauge("process_start_time_seconds", "Start of the process in seconds since 1970.") { start }
        gauge("process_resident_memory_bytes", "Resident memory.") { Double(clinux_resident_bytes()) }
        register("process_cpu_seconds_total", "User and system CPU time.", .counter) {
            $0.sample(Double(clinux_cpu_us()) / 1_000_000)
        }
    }

    private func family<Instrument>(
        _ labels: KeyValuePairs<String, [String]>, _ make: () -> Instrument
    ) -> MetricFamily<Instrument> {
        precondition(labels.allSatisfy { Self.isName($0.key) && $0.key != "le" }, "not a label name")
        let count = labels.reduce(1) { min($0, Self.mostSeries + 1) * $1.value.count }
        precondition(count <= Self.mostSeries, "too many series")
        return MetricFamily(labels: labels, refused: refused, make: make)
    }

    private func register(
        _ name: String, _ help: String, _ kind: Kind, _ write: @escaping @Sendable (inout Exposition) -> Void
    ) {
        precondition(
            Self.isName(name) && (name.hasPrefix("ratchet_") || name.hasPrefix("process_")), "not a metric name")
        families.withLock { families in
            precondition(!families.contains { $0.name == name }, "a metric is registered twice")
            families.append(Family(name: name, help: help, kind: kind, write: write))
        }
    }

    private static func isName(_ text: String) -> Bool {
        guard let first = text.utf8.first, !(0x30...0x39).contains(first) else { return false }
        return text.utf8.allSatisfy { (0x61...0x7A).contains($0) || (0x30...0x39).contains($0) || $0 == 0x5F }
    }

    // MARK: - Exposition

    /// The Content-Type of `exposition`.
    package static let contentType = "text/plain; version=0.0.4; charset=utf-8"

    /// Prometheus text format 0.0.4, families in the order of registration.
    package func exposition() -> String {
        var exposition = Exposition()
        for family in families.withLock({ $0 }) { exposition.append(family) }
        return exposition.text
    }
}
