/// Writes the Prometheus text format 0.0.4 (prometheus.io, "Exposition formats").
struct Exposition {
    private(set) var text = ""
    private var name = ""

    mutating func append(_ family: Metrics.Family) {
        name = family.name
        text += "# HELP \(name) \(Self.escaped(family.help, quotes: false))\n# TYPE \(name) \(family.kind.rawValue)\n"
        family.write(&self)
    }

    mutating func sample(_ value: UInt64, _ labels: [(name: String, value: String)] = []) {
        line("", labels, String(value))
    }

    mutating func sample(_ value: Double, _ labels: [(name: String, value: String)] = []) {
        line("", labels, Self.decimal(value))
    }

    /// Buckets are cumulated here and the count is the last of them, so that one scrape never contradicts itself.
    mutating func samples(_ histogram: Histogram, _ labels: [(name: String, value: String)]) {
        var seen: UInt64 = 0
        for (index, count) in histogram.counts.enumerated() {
            seen += count
            let bound = index < histogram.bounds.count ? Self.scaled(histogram.bounds[index], histogram.unit) : "+Inf"
            line("_bucket", labels + [("le", bound)], String(seen))
        }
        line("_sum", labels, Self.scaled(histogram.sum, histogram.unit))
        line("_count", labels, String(seen))
    }

    private mutating func line(_ suffix: String, _ labels: [(name: String, value: String)], _ value: String) {
        text += name + suffix
        if !labels.isEmpty {
            let pairs = labels.map { "\($0.name)=\"\(Self.escaped($0.value, quotes: true))\"" }
            text += "{" + pairs.joined(separator: ",") + "}"
        }
        text += " \(value)\n"
    }

    private static func escaped(_ text: String, quotes: Bool) -> String {
        var escaped = String.UnicodeScalarView()
        for scalar in text.unicodeScalars {
            switch scalar {
            case "\\": escaped.append(contentsOf: "\\\\".unicodeScalars)
            case "\n": escaped.append(contentsOf: "\\n".unicodeScalars)
            case "\"" where quotes: escaped.append(contentsOf: "\\\"".unicodeScalars)
            default: escaped.append(scalar)
            }
        }
        return String(escaped)
    }

    private static func decimal(_ value: Double) -> String {
        if value.isNaN { return "NaN" }
        if value.isInfinite { return value < 0 ? "-Inf" : "+Inf" }
        if let whole = Int64(exactly: value) { return String(whole) }
        return "\(value)"
    }

    /// A whole number of the observed unit in the shown unit, exact.
    private static func scaled(_ value: Int64, _ unit: Histogram.Unit) -> String {
        guard unit.decimals > 0 else { return String(value) }
        var divisor: UInt64 = 1
        for _ in 0..<unit.decimals { divisor *= 10 }
        let (whole, rest) = value.magnitude.quotientAndRemainder(dividingBy: divisor)
        var digits = String(rest)
        digits = String(repeating: "0", count: unit.decimals - digits.utf8.count) + digits
        while digits.utf8.last == UInt8(ascii: "0") { digits.removeLast() }
        return (value < 0 ? "-" : "") + "\(whole)" + (digits.isEmpty ? "" : "." + digits)
    }
}
