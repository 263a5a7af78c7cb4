package import JSON

/// What a reply means for the token that was asked about. Source: Apple, AAAttribution.attributionToken(); what that
/// doesn't say is decided in docs/decisions/007-adservices.md.
package enum AdServicesVerdict: Equatable, Sendable {
    /// How the question about an install ended. The raw values are the table's.
    package enum Ending: String, CaseIterable, Sendable {
        /// An ad brought the install.
        case resolved
        /// Apple's placeholder for what was not installed from the App Store: counts nowhere.
        case test
        /// No ad brought it.
        case organic
        /// Apple doesn't take the token for one of its own.
        case invalid
        /// 24 hours have passed.
        case expired
    }

    /// The answer that stays.
    case final(Ending, AttributionPayload?)
    /// Not yet, or nothing that can be read: the next rung of the ladder.
    case notYet
    /// Apple's trouble or the network's, not the token's: the same rung again.
    case trouble
    /// So many calls are not wanted: nobody asks for a while.
    case tooMany

    /// - Parameter parser: only borrowed.
    package init(_ reply: AdServicesReply, using parser: JSONParser) {
        guard case .answered(let status, _, let body) = reply else {
            // Whatever is too long is no answer of Apple's, but it came from somewhere.
            if case .overlong(let status) = reply, status < 500 { self = .notYet } else { self = .trouble }
            return
        }
        switch status {
        case 200:
            guard let payload = AttributionPayload(body, using: parser) else {
                self = .notYet
                return
            }
            self =
                if !payload.attribution {
                    .final(.organic, payload)
                } else if payload.campaignID == AttributionPayload.placeholderCampaign {
                    .final(.test, payload)
                } else {
                    .final(.resolved, payload)
                }
        case 400: self = .final(.invalid, nil)
        case 429: self = .tooMany
        case 408, 425, 500...599: self = .trouble
        default: self = .notYet
        }
    }

    /// Whether the reply speaks for a service that is away: many such in a row stop the sweep.
    package static func isOutage(_ reply: AdServicesReply) -> Bool {
        switch reply {
        case .none: true
        case .answered(let status, _, _), .overlong(let status): (500...599).contains(status)
        }
    }
}
