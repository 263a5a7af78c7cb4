internal import Synchronization

// Values are atomics, not values under a lock: a bump is one uncontended instruction of a few nanoseconds, and a scrape
// never stops an event loop. A scrape may see two counters of one event a moment apart, which Prometheus allows.

/// A count that only grows, from any thread.
package final class Counter: Sendable {
    private let value = Atomic<UInt64>(0)

    init() {}

    /// Adds to the count; negative numbers add nothing.
    package func add(_ amount: Int = 1) {
        value.wrappingAdd(UInt64(clamping: amount), ordering: .relaxed)
    }

    /// What has been counted so far.
    package var count: UInt64 { value.load(ordering: .relaxed) }
}

/// A number that goes up and down, from any thread.
package final class Gauge: Sendable {
    private let bits = Atomic<UInt64>(Double.zero.bitPattern)

    init() {}

    package func set(_ value: Double) { bits.store(value.bitPattern, ordering: .relaxed) }
    package func set(_ value: Int) { set(Double(value)) }

    package func add(_ amount: Double) {
        var old = bits.load(ordering: .relaxed)
        while true {
            let new = (Double(bitPattern: old) + amount).bitPattern
            let result = bits.weakCompareExchange(expected: old, desired: new, ordering: .relaxed)
            if result.exchanged { return }
            old = result.original
        }
    }

    package var value: Double { Double(bitPattern: bits.load(ordering: .relaxed)) }
}

/// How often values fell into which range, from any thread. Values are whole numbers of a small unit, so that sums are
/// exact.
package final class Histogram: Sendable {
    /// What an observed value is, and what is shown: Prometheus asks for base units.
    package enum Unit: Sendable {
        /// Shown as it is: jobs, bytes.
        case plain
        /// Observed in microseconds, shown in seconds.
        case microseconds

        var decimals: Int { self == .plain ? 0 : 6 }
    }

    private final class Cell: Sendable {
        let value = Atomic<UInt64>(0)
    }

    let unit: Unit
    /// Upper bounds, inclusive, ascending, in the observed unit.
    let bounds: [Int64]
    private let cells: [Cell]
    private let total = Atomic<Int64>(0)

    init(unit: Unit, bounds: [Int64]) {
        precondition(zip(bounds, bounds.dropFirst()).allSatisfy { $0 < $1 }, "bounds of a histogram must ascend")
        self.unit = unit
        self.bounds = bounds
        cells = (0...bounds.count).map { _ in Cell() }
    }

    /// Counts one value; a negative one counts as 0 (a clock that was set back).
    package func observe(_ value: Int64) {
        let value = max(0, value)
        var index = 0
        while index < bounds.count, bounds[index] < value { index += 1 }
        cells[index].value.wrappingAdd(1, ordering: .relaxed)
        total.wrappingAdd(value, ordering: .relaxed)
    }

    /// Counts by range, not cumulated; the last is above every bound.
    package var counts: [UInt64] { cells.map { $0.value.load(ordering: .relaxed) } }
    /// The sum of what was observed, in the observed unit.
    package var sum: Int64 { total.load(ordering: .relaxed) }

    /// 0.5 ms to 10 s, for `microseconds`.
    package static let latencyBounds: [Int64] = [
        500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000, 5_000_000,
        10_000_000,
    ]
    /// 1 to 1,024 in powers of two, for `plain`.
    package static let sizeBounds: [Int64] = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1_024]
}

/// The instruments of one name, one for each combination of label values. Every value is listed when the family is
/// registered, so that nothing from outside can make a new series.
package final class MetricFamily<Instrument: Sendable>: Sendable {
    let series: [(labels: [(name: String, value: String)], instrument: Instrument)]
    private let index: [[String]: Int]
    private let unlisted: Instrument
    private let refused: Counter

    init(labels: KeyValuePairs<String, [String]>, refused: Counter, make: () -> Instrument) {
        var combinations: [[(name: String, value: String)]] = [[]]
        for (name, values) in labels {
            combinations = combinations.flatMap { start in values.map { start + [(name, $0)] } }
        }
        series = combinations.map { ($0, make()) }
        let pairs = combinations.enumerated().map { ($1.map(\.value), $0) }
        index = Dictionary(pairs) { _, _ in preconditionFailure("a label value is listed twice") }
        unlisted = make()
        self.refused = refused
    }

    /// The instrument of these label values, in the order of registration. Hashes them: a hot path looks its
    /// instruments up once and keeps them.
    ///
    /// Values that were not listed get an instrument that is shown nowhere, and count in
    /// `ratchet_metric_labels_refused_total`.
    package subscript(values: String...) -> Instrument {
        if let found = index[values] { return series[found].instrument }
        refused.add()
        return unlisted
    }
}
