internal import Service
internal import Store

/// What applied batches did to the tables.
final class WriterMetrics: Sendable {
    private let rows: MetricFamily<Counter>
    private let mismatches: Counter
    private let cut: Counter
    private let compacted: Counter

    init(_ metrics: Metrics) {
        rows = metrics.counters(
            "ratchet_rows_written_total", "Row versions written, by table.",
            labels: ["table": ["customers", "purchases", "purchase_owner_writes", "transactions"]])
        mismatches = metrics.counter(
            "ratchet_lineage_mismatches_total",
            "Attribute calls whose signed transaction named another lineage than the body.")
        cut = metrics.counter(
            "ratchet_attributes_cut_total", "Times a customer's attributes were cut to the 256 that are kept.")
        compacted = metrics.counter(
            "ratchet_owner_writes_compacted_total", "Owner writes older than 30 days removed: they changed nothing.")
    }

    func addCompacted(_ rows: Int) { compacted.add(rows) }

    func add(_ report: ApplyReport) {
        rows["customers"].add(report.customers)
        rows["purchases"].add(report.purchases)
        rows["purchase_owner_writes"].add(report.ownerWrites)
        rows["transactions"].add(report.transactions)
        mismatches.add(report.lineageMismatches)
        cut.add(report.attributesCut)
    }
}
