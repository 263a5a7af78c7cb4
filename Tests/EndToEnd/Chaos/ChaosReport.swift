/// How an installation took its faults: one line for each kind.
struct ChaosReport: Sendable {
    /// Seconds from the end of a fault.
    struct Recovery: Sendable {
        /// Until the first call is acknowledged.
        let acknowledged: Double
        /// Until writers end jobs again.
        let written: Double
        /// Until everything that came before the fault's end has left its lane.
        let drained: Double
    }

    private var faults: [Fault] = []
    private(set) var recoveries: [Fault: [Recovery]] = [:]
    private var lost: [Fault: Int] = [:]
    private var doubled: [Fault: Int] = [:]
    private var looked: [Fault: Int] = [:]

    /// Faults in the order they came; window `n` of the ledger belongs to the n-th, counted from 1.
    mutating func add(_ fault: Fault, _ recovery: Recovery) {
        faults.append(fault)
        recoveries[fault, default: []].append(recovery)
    }

    mutating func add(_ verdict: ChaosVerdict) {
        for (index, fault) in faults.enumerated() {
            lost[fault, default: 0] += verdict.lost[index + 1] ?? 0
            doubled[fault, default: 0] += verdict.doubled[index + 1] ?? 0
            looked[fault, default: 0] += verdict.looked[index + 1] ?? 0
        }
    }

    /// A Markdown table.
    var table: String {
        var lines = [
            "| fault | times | writes acknowledged | lost | doubled | acknowledged again, s | written again, s"
                + " | all from before done, s |",
            "| --- | --: | --: | --: | --: | --: | --: | --: |",
        ]
        for fault in Fault.allCases {
            guard let all = recoveries[fault] else { continue }
            lines.append(
                "| \(fault.rawValue) | \(all.count) | \(looked[fault] ?? 0) | \(lost[fault] ?? 0) | \(doubled[fault] ?? 0)"
                    + " | \(Self.range(all.map(\.acknowledged))) | \(Self.range(all.map(\.written)))"
                    + " | \(Self.range(all.map(\.drained))) |")
        }
        return lines.joined(separator: "\n")
    }

    /// Median and maximum; the one value of a single fault.
    private static func range(_ values: [Double]) -> String {
        let sorted = values.sorted()
        guard let most = sorted.last else { return "" }
        let median = (sorted[(sorted.count - 1) / 2] + sorted[sorted.count / 2]) / 2
        return sorted.count == 1 ? number(most) : "\(number(median)) (max \(number(most)))"
    }

    private static func number(_ value: Double) -> String {
        let hundredths = Int((value * 100).rounded())
        let rest = hundredths % 100
        return "\(hundredths / 100).\(rest < 10 ? "0" : "")\(rest)"
    }
}
