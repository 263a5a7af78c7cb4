internal import Service
internal import Store

/// What applied batches did to the tables.
final class WriterMetrics: Sendable {
    private let rows: MetricFamily<Counter>
    private let mismatches: Counter
    private let cut: Counter
    private let compacted: Counter
    private let laterTokens: Counter

    init(_ metrics: Metrics) {
        rows = metrics.counters(
            "ratchet_rows_written_total", "Row versions written, by table.",
            labels: ["table": ["customers", "purchases", "purchase_owner_writes", "transactions", "adservices_tokens"]])
        mismatches = metrics.counter(
            "ratchet_lineage_mismatches_total",
            "Attribute calls whose signed transaction named another lineage than the body.")
        cut = metrics.counter(
            "ratchet_attributes_cut_total", "Times a customer's attributes were cut to the 256 that are kept.")
        compacted = metrics.counter(
            "ratchet_owner_writes_compacted_total", "Owner writes older than 30 days removed: they changed nothing.")
        laterTokens = metrics.counter(
            "ratchet_adservices_later_tokens_total",
            "AdServices tokens of installs that had one: the first one counts alone.")
    }

    func addCompacted(_ rows: Int) { compacted.add(rows) }

    func add(_ report: ApplyReport) {
        rows["customers"].add(report.customers)
        rows["purchases"].add(report.purchases)
        rows["purchase_owner_writes"].add(report.ownerWrites)
        rows["transactions"].add(report.transactions)
        rows["adservices_tokens"].add(report.adServicesTokens)
        laterTokens.add(report.adServicesLater)
        mismatches.add(report.lineageMismatches)
        cut.add(report.attributesCut)
    }
}
