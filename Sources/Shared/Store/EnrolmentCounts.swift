package import Postgres
package import Wire

/// How far enrolments of devices come, by app: the enrolment funnel.
package enum EnrolmentCounts {
    /// Days that are kept: a release of an app shows within them.
    package static let days: Int64 = 90

    /// Adds counts, and drops those of days that are not kept. Not a join: call it once per count taken.
    package static func add(
        _ counts: [EnrolmentCount: Int64], nowMilliseconds: Int64, _ connection: PostgresConnection
    ) async throws(PostgresError) {
        // Rows in one order, so that two writers never deadlock.
        let counts = counts.filter { $0.value > 0 }.sorted { $0.key.name < $1.key.name }
        guard !counts.isEmpty else { return }
        try await connection.transaction { () async throws(PostgresError) in
            _ = try await connection.query(
                """
                INSERT INTO enrolment_counts AS c (day, organization, bundle_id, step, reason, times)
                SELECT * FROM unnest($1::bigint[], $2::text[], $3::text[], $4::text[], $5::text[], $6::bigint[])
                ON CONFLICT (organization, bundle_id, day, step, reason) DO UPDATE SET times = c.times + excluded.times
                """,
                [
                    .int64s(counts.map(\.key.day)), .texts(counts.map(\.key.organization)),
                    .texts(counts.map(\.key.bundleID)), .texts(counts.map(\.key.step.rawValue)),
                    .texts(counts.map(\.key.reason)), .int64s(counts.map(\.value)),
                ])
            _ = try await connection.query(
                """
                DELETE FROM enrolment_counts WHERE (organization, bundle_id, day, step, reason) IN (
                    SELECT organization, bundle_id, day, step, reason FROM enrolment_counts
                    WHERE day < $1 ORDER BY 1, 2, 3, 4, 5 FOR UPDATE SKIP LOCKED)
                """, [.int64(EnrolmentCount.day(ofMilliseconds: nowMilliseconds) - days)])
        }
    }

    /// The sum of the days from one on, by app, step and reason, in the order of an enrolment.
    /// - Parameters:
    ///   - bundleID: nil for all apps.
    ///   - firstDay: days since 1970, UTC.
    /// - Returns: rows of the organization, each with day `firstDay`, and without `bundleID` those of calls that named no
    ///   organization's app, which may be anybody's.
    package static func sums(
        organization: String, bundleID: String?, firstDay: Int64, _ connection: PostgresConnection
    ) async throws(PostgresError) -> [(what: EnrolmentCount, times: Int64)] {
        let rows = try await connection.query(
            """
            SELECT organization, bundle_id, step, reason, sum(times)::bigint AS times FROM enrolment_counts
            WHERE organization IN ($1, '') AND day >= $2 AND ($3::text IS NULL OR bundle_id = $3)
            GROUP BY organization, bundle_id, step, reason
            """, [.text(organization), .int64(firstDay), .text(bundleID)]
        ).rows
        var sums: [(what: EnrolmentCount, times: Int64)] = []
        for row in rows {
            guard let step = EnrolmentStep(rawValue: try row.string("step")) else { continue }
            sums.append(
                (
                    EnrolmentCount(
                        day: firstDay, organization: try row.string("organization"),
                        bundleID: try row.string("bundle_id"), step: step, reason: try row.string("reason")),
                    try row.int64("times")
                ))
        }
        let order = Dictionary(
            uniqueKeysWithValues: EnrolmentStep.allCases.enumerated().map { ($0.element, $0.offset) })
        return sums.sorted { a, b in
            if a.what.bundleID != b.what.bundleID { return a.what.bundleID < b.what.bundleID }
            if a.what.step != b.what.step { return order[a.what.step, default: 0] < order[b.what.step, default: 0] }
            return (-a.times, a.what.reason) < (-b.times, b.what.reason)
        }
    }
}
