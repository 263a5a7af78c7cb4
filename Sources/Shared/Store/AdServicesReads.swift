package import Postgres

/// Installs by what became of their tokens.
package struct AdServicesStatistics: Equatable, Sendable {
    package struct Row: Equatable, Sendable {
        package let bundleID: String
        /// The day's start in UTC, microseconds since 1970.
        package let day: Int64
        package let state: AdServicesRecord.State
        package let lastStatus: Int64?
        package let installs: Int64
        package let laterTokens: Int64
        package let laterAfterFailure: Int64
    }

    /// What a campaign brought. Test installs are in none.
    package struct Campaign: Equatable, Sendable {
        package let bundleID: String
        package let organizationID: Int64?
        package let campaignID: Int64?
        package let installs: Int64
        package let redownloads: Int64
        package let clicks: Int64
        package let impressions: Int64
        package let keywords: Int64
        /// Microseconds since 1970.
        package let firstAt: Int64
        package let lastAt: Int64
    }

    /// The latest day first.
    package let rows: [Row]
    /// The one with the most installs first.
    package let campaigns: [Campaign]
}

extension AdServicesTokens {
    private static let matching = """
        organization = $1 AND subject_kind = 'install'
            AND ($2::text IS NULL OR bundle_id = $2
                OR bundle_id IN (SELECT a.bundle_id FROM apps AS a WHERE a.organization = $1 AND a.id = $2))
            AND ($3::text IS NULL OR state = $3) AND stamp >= $4 AND stamp < $5
            AND ($6::bigint IS NULL OR last_status = $6)
        """

    private static func parameters(_ organization: String, _ filter: AdServicesFilter) -> [PostgresParameter] {
        [
            .text(organization), .text(filter.app), .text(filter.state?.rawValue),
            .int64(filter.received?.lowerBound ?? 0), .int64(filter.received?.upperBound ?? .max),
            .int64(filter.lastStatus),
        ]
    }

    /// Installs of an organization, the latest first.
    /// - Parameter limit: 1 or more.
    package static func list(
        organization: String, matching filter: AdServicesFilter = AdServicesFilter(), limit: Int = 100,
        _ connection: PostgresConnection
    ) async throws(PostgresError) -> [AdServicesRecord] {
        try records(
            await connection.query(
                """
                SELECT * FROM adservices_tokens WHERE \(matching)
                ORDER BY stamp DESC, bundle_id, subject LIMIT $7
                """, parameters(organization, filter) + [.int64(Int64(limit))]))
    }

    /// One install, in each app that has it: an id may stand in several.
    /// - Parameters:
    ///   - subject: folded.
    ///   - app: an app's id or a bundle id; nil for all.
    package static func find(
        organization: String, subject: String, app: String? = nil, _ connection: PostgresConnection
    ) async throws(PostgresError) -> [AdServicesRecord] {
        // By the bundles first: the subject is the last part of the key, and an organization has few of them.
        try records(
            await connection.query(
                """
                WITH RECURSIVE bundles AS (
                    (SELECT bundle_id FROM adservices_tokens WHERE organization = $1 ORDER BY bundle_id LIMIT 1)
                    UNION ALL
                    SELECT (SELECT t.bundle_id FROM adservices_tokens AS t
                        WHERE t.organization = $1 AND t.bundle_id > b.bundle_id ORDER BY t.bundle_id LIMIT 1)
                    FROM bundles AS b WHERE b.bundle_id IS NOT NULL
                )
                SELECT t.* FROM bundles AS b JOIN adservices_tokens AS t
                    ON t.organization = $1 AND t.bundle_id = b.bundle_id AND t.subject_kind = 'install'
                    AND t.subject = $3
                WHERE ($2::text IS NULL OR t.bundle_id = $2
                    OR t.bundle_id IN (SELECT a.bundle_id FROM apps AS a WHERE a.organization = $1 AND a.id = $2))
                ORDER BY t.bundle_id
                """, [.text(organization), .text(app), .text(subject)]))
    }

    private static func records(_ result: PostgresResult) throws(PostgresError) -> [AdServicesRecord] {
        var records: [AdServicesRecord] = []
        records.reserveCapacity(result.count)
        for row in result.rows { records.append(try AdServicesRecord(row)) }
        return records
    }

    /// Counts of the installs that fit. Reads all of their rows.
    package static func statistics(
        organization: String, matching filter: AdServicesFilter, _ connection: PostgresConnection
    ) async throws(PostgresError) -> AdServicesStatistics {
        let parameters = parameters(organization, filter)
        let groups = try await connection.query(
            """
            SELECT bundle_id, stamp - stamp % \(dayMicroseconds) AS day, state, last_status, count(*) AS installs,
                sum(later_tokens)::bigint AS later, sum(later_after_failure)::bigint AS later_after_failure
            FROM adservices_tokens WHERE \(matching)
            GROUP BY 1, 2, 3, 4 ORDER BY day DESC, bundle_id, state, last_status
            """, parameters, deadlineMilliseconds: longReadMilliseconds
        ).rows
        var rows: [AdServicesStatistics.Row] = []
        for group in groups {
            guard let state = AdServicesRecord.State(rawValue: try group.string("state")) else { continue }
            rows.append(
                AdServicesStatistics.Row(
                    bundleID: try group.string("bundle_id"), day: try group.int64("day"), state: state,
                    lastStatus: try group.optionalInt64("last_status"), installs: try group.int64("installs"),
                    laterTokens: try group.int64("later"),
                    laterAfterFailure: try group.int64("later_after_failure")))
        }
        return AdServicesStatistics(
            rows: rows, campaigns: try await campaigns(parameters, connection))
    }

    /// Reads of all rows take two seconds or so for each million.
    static let longReadMilliseconds: Int64 = 120_000
    static let dayMicroseconds: Int64 = 86_400_000_000

    private static func campaigns(
        _ parameters: [PostgresParameter], _ connection: PostgresConnection
    ) async throws(PostgresError) -> [AdServicesStatistics.Campaign] {
        let rows = try await connection.query(
            """
            SELECT bundle_id, org_id, campaign_id, count(*) AS installs,
                count(*) FILTER (WHERE conversion_type = 'Redownload') AS redownloads,
                count(*) FILTER (WHERE claim_type = 'Click') AS clicks,
                count(*) FILTER (WHERE claim_type = 'Impression') AS impressions,
                count(DISTINCT keyword_id) AS keywords, min(stamp) AS first_at, max(stamp) AS last_at
            FROM adservices_tokens WHERE \(matching) AND state = 'resolved'
            GROUP BY bundle_id, org_id, campaign_id ORDER BY installs DESC, bundle_id, campaign_id
            """, parameters, deadlineMilliseconds: longReadMilliseconds
        ).rows
        var campaigns: [AdServicesStatistics.Campaign] = []
        for row in rows {
            campaigns.append(
                AdServicesStatistics.Campaign(
                    bundleID: try row.string("bundle_id"), organizationID: try row.optionalInt64("org_id"),
                    campaignID: try row.optionalInt64("campaign_id"), installs: try row.int64("installs"),
                    redownloads: try row.int64("redownloads"), clicks: try row.int64("clicks"),
                    impressions: try row.int64("impressions"), keywords: try row.int64("keywords"),
                    firstAt: try row.int64("first_at"), lastAt: try row.int64("last_at")))
        }
        return campaigns
    }
}
