internal import Bytes
package import Store

// How AdServices tokens read for operators: the one place that names the keys.

extension Document {
    /// A number of Apple's as a string: they use all 64 bits, and most readers of JSON keep only 53.
    private static func id(_ value: Int64?) -> Document { .text(value.map { String($0) }) }

    private static func number(_ value: Int64?) -> Document { value.map { .int($0) } ?? .null }

    package init(_ record: AdServicesRecord) {
        self = .members([
            "installId": .string(record.installID), "bundleId": .string(record.bundleID),
            "state": .string(record.state.rawValue), "attempts": .int(record.attempts), "asks": .int(record.asks),
            "lastStatus": Self.number(record.lastStatus),
            "campaignId": Self.id(record.campaign.campaignID), "adGroupId": Self.id(record.campaign.adGroupID),
            "keywordId": Self.id(record.campaign.keywordID),
            "receivedAt": .time(microseconds: record.receivedAt),
            "lastAskedAt": .time(microseconds: record.lastAskedAt),
            "nextAskAt": .time(microseconds: record.nextAskAt), "asking": .bool(record.isAsked),
            "endedAt": .time(microseconds: record.endedAt), "conversionType": .text(record.campaign.conversionType),
            "claimType": .text(record.campaign.claimType),
            "countryOrRegion": .text(record.campaign.countryOrRegion),
            "environment": .string(record.environment), "attested": .bool(record.attested),
            "laterTokens": .int(record.laterTokens), "laterTokensAfterFailure": .int(record.laterAfterFailure),
        ])
    }

    /// With what is of interest for one install only.
    package init(whole record: AdServicesRecord) {
        let campaign = record.campaign
        self = Document(record).adding([
            "organization": .string(record.organization), "orgId": Self.id(campaign.organizationID),
            "adId": Self.id(campaign.adID), "creativeSetId": Self.id(campaign.creativeSetID),
            "supplyPlacement": .text(campaign.supplyPlacement),
            "clickedAt": .time(microseconds: campaign.clickedAt),
            "impressionAt": .time(microseconds: campaign.impressionAt), "appVersion": .text(record.appVersion),
            "storefront": .text(record.storefront), "unattestedReason": .text(record.unattestedReason),
            "device": .text(record.device), "addressHash": .text(record.addressHash),
            "payload": .text(record.payload),
        ])
    }

    package init(_ summary: Administration.AdServicesSummary) {
        let ended = summary.ended
        func percent(_ part: Int64) -> Document {
            guard ended > 0 else { return .null }
            let tenths = part * 1_000 / ended
            return .json("\(tenths / 10).\(tenths % 10)")
        }
        self = .members([
            "from": .time(microseconds: summary.received.lowerBound),
            "to": .time(microseconds: summary.received.upperBound), "installs": .int(summary.installs),
            "states": .object(
                AdServicesRecord.State.allCases.filter { $0 != .test }.map {
                    Member($0.rawValue, .int(summary.installs($0)))
                }),
            "resolvedPercent": percent(summary.installs(.resolved)),
            "expiredAfter404Percent": percent(summary.installs(.expired, lastStatus: 404)),
            "testInstalls": .int(summary.installs(.test)),
            "laterTokens": .int(summary.rows.reduce(0) { $0 + $1.laterTokens }),
            "laterTokensAfterFailure": .int(summary.rows.reduce(0) { $0 + $1.laterAfterFailure }),
            "campaigns": .list(summary.statistics.campaigns.map { Document($0) }),
            "rows": .list(summary.statistics.rows.map { Document($0) }),
        ])
    }

    private init(_ campaign: AdServicesStatistics.Campaign) {
        self = .members([
            "campaignId": Self.id(campaign.campaignID), "orgId": Self.id(campaign.organizationID),
            "bundleId": .string(campaign.bundleID), "installs": .int(campaign.installs),
            "redownloads": .int(campaign.redownloads), "clicks": .int(campaign.clicks),
            "impressions": .int(campaign.impressions), "keywords": .int(campaign.keywords),
            "firstAt": .time(microseconds: campaign.firstAt), "lastAt": .time(microseconds: campaign.lastAt),
        ])
    }

    private init(_ row: AdServicesStatistics.Row) {
        self = .members([
            "day": .string(String(Timestamps.rfc3339(microseconds: row.day).prefix(10))),
            "bundleId": .string(row.bundleID), "state": .string(row.state.rawValue),
            "lastStatus": Self.number(row.lastStatus), "installs": .int(row.installs),
        ])
    }

    /// - Parameter now: microseconds since 1970.
    package init(_ status: AdServicesSweepStatus, now: Int64) {
        self = .members([
            "paused": .bool(status.pause != nil), "pausedAt": .time(microseconds: status.pause?.at),
            "pausedUntil": .time(microseconds: status.pause?.until), "pausedBy": .text(status.pause?.by),
            "pauseReason": .text(status.pause?.reason), "heldUntil": .time(microseconds: status.heldUntil),
            "holdReason": .text(status.holdReason),
            "pending": .int(status.pending), "due": .int(status.due), "asking": .int(status.asking),
            "oldestDueMs": Self.number(status.oldestDueAt.map { (now - $0) / 1_000 }),
            "nextDueAt": .time(microseconds: status.nextDueAt),
        ])
    }
}
