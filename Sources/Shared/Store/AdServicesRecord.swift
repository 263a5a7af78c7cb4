internal import Postgres

/// An install's AdServices token and what Apple said of it.
package struct AdServicesRecord: Equatable, Sendable {
    /// The raw values are stored and shown.
    package enum State: String, CaseIterable, Sendable {
        case pending, resolved, test, organic, invalid, expired
    }

    /// What Apple said of an install that an ad brought. Ids use all 64 bits.
    package struct Campaign: Equatable, Sendable {
        package let organizationID: Int64?
        package let campaignID: Int64?
        package let adGroupID: Int64?
        /// Nil where Apple names none: Search Match, no search at all, or a user without Personalized Ads.
        package let keywordID: Int64?
        package let adID: Int64?
        package let creativeSetID: Int64?
        package let conversionType: String?
        package let claimType: String?
        package let countryOrRegion: String?
        package let supplyPlacement: String?
        /// Microseconds since 1970.
        package let clickedAt: Int64?
        package let impressionAt: Int64?
    }

    package let organization: String
    package let bundleID: String
    /// As the call spelled it whose token counts.
    package let installID: String
    package let state: State
    /// Asks that used up a rung of the ladder or ended it, and all asks.
    package let attempts: Int64
    package let asks: Int64
    /// Apple's last HTTP status; 0 for no answer, nil before the first ask.
    package let lastStatus: Int64?
    /// Microseconds since 1970, as all times here.
    package let receivedAt: Int64
    package let lastAskedAt: Int64?
    /// When the next ask is due; nil when it is under way, or none comes.
    package let nextAskAt: Int64?
    package let endedAt: Int64?
    package let isAsked: Bool
    package let appVersion: String?
    package let storefront: String?
    package let environment: String
    package let attested: Bool
    package let unattestedReason: String?
    package let device: String?
    package let addressHash: String?
    package let laterTokens: Int64
    /// Of them, those that came after the first one had ended invalid or expired.
    package let laterAfterFailure: Int64
    package let campaign: Campaign
    /// Apple's answer as it came.
    package let payload: String?

    init(_ row: PostgresRow) throws(PostgresError) {
        organization = try row.string("organization")
        bundleID = try row.string("bundle_id")
        let subject = try row.string("subject")
        installID = try row.optionalString("subject_as_sent") ?? subject
        let state = try row.string("state")
        guard let known = State(rawValue: state) else {
            throw PostgresError(.usage, "an AdServices token is in state \(state)")
        }
        self.state = known
        attempts = try row.int64("attempts")
        asks = try row.int64("asks")
        lastStatus = try row.optionalInt64("last_status")
        receivedAt = try row.int64("stamp")
        lastAskedAt = try row.optionalInt64("last_asked_at")
        isAsked = try row.optionalBytes("lease") != nil
        // With a lease it is under way, or comes at the lease's end.
        nextAskAt = isAsked ? nil : try row.optionalInt64("due_at")
        endedAt = try row.optionalInt64("ended_at")
        appVersion = try row.optionalString("app_version")
        storefront = try row.optionalString("storefront")
        environment = try row.string("environment")
        attested = try row.bool("attested")
        unattestedReason = try row.optionalString("unattested_reason")
        device = try row.optionalString("device")
        addressHash = try row.optionalString("address_hash")
        laterTokens = try row.int64("later_tokens")
        laterAfterFailure = try row.int64("later_after_failure")
        campaign = Campaign(
            organizationID: try row.optionalInt64("org_id"), campaignID: try row.optionalInt64("campaign_id"),
            adGroupID: try row.optionalInt64("ad_group_id"), keywordID: try row.optionalInt64("keyword_id"),
            adID: try row.optionalInt64("ad_id"), creativeSetID: try row.optionalInt64("creative_set_id"),
            conversionType: try row.optionalString("conversion_type"),
            claimType: try row.optionalString("claim_type"),
            countryOrRegion: try row.optionalString("country_or_region"),
            supplyPlacement: try row.optionalString("supply_placement"),
            clickedAt: try row.optionalInt64("clicked_at"), impressionAt: try row.optionalInt64("impression_at"))
        payload = try row.optionalString("payload")
    }
}

/// Which installs are meant. All that is set must fit.
package struct AdServicesFilter: Equatable, Sendable {
    /// An app's id or a bundle id.
    package var app: String?
    package var state: AdServicesRecord.State?
    /// When the token was received, microseconds since 1970.
    package var received: Range<Int64>?
    /// Apple's last HTTP status; 0 for no answer.
    package var lastStatus: Int64?

    package init(
        app: String? = nil, state: AdServicesRecord.State? = nil, received: Range<Int64>? = nil,
        lastStatus: Int64? = nil
    ) {
        self.app = app
        self.state = state
        self.received = received
        self.lastStatus = lastStatus
    }
}
