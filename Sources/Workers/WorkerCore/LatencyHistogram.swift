/// Latencies in fixed buckets of milliseconds, as Prometheus wants them: cumulative, with a sum and a count.
package struct LatencyHistogram: Sendable {
    /// Upper bounds, milliseconds: from a batch on an idle machine to a backlog of minutes.
    package static let bounds: [Int64] = [1, 2, 5, 10, 20, 50, 100, 250, 500, 1000, 2500, 5000, 15_000, 60_000, 300_000]

    /// Observations at or below each bound; the last element is all of them.
    package private(set) var buckets = [Int64](repeating: 0, count: bounds.count + 1)
    package private(set) var sumMilliseconds: Int64 = 0
    package var count: Int64 { buckets[buckets.count - 1] }

    package init() {}

    /// Negative latencies (clocks of two machines) count as zero.
    package mutating func add(milliseconds: Int64) {
        let value = max(0, milliseconds)
        sumMilliseconds += value
        var index = buckets.count - 1
        buckets[index] += 1
        index -= 1
        while index >= 0 && value <= Self.bounds[index] {
            buckets[index] += 1
            index -= 1
        }
    }
}
