internal import Bytes
package import JSON

/// Apple's answer about an install: which ad brought it, if one did. Source: Apple, AAAttribution.attributionToken(),
/// "Attribution payload descriptions". What is absent or of another type than expected is nil, never a substitute:
/// there is no keyword when there was none.
package struct AttributionPayload: Equatable, Sendable {
    /// The campaign of Apple's test answers.
    package static let placeholderCampaign: Int64 = 1_234_567_890
    /// The raw answer is kept up to this size; Apple's have less than 500 bytes.
    package static let mostRawBytes = 4_096
    /// Texts are names of a few words; whatever is longer is none of them.
    private static let mostTextBytes = 128
    /// Shorter ones are refused at the door.
    private static let leastTokenBytes = 32
    /// Apple's answers are flat.
    private static let mostDepth = 16

    package let attribution: Bool
    package var orgID: Int64?
    package var campaignID: Int64?
    package var adGroupID: Int64?
    package var keywordID: Int64?
    package var adID: Int64?
    package var creativeSetID: Int64?
    /// `Download`, `Redownload`, or what Apple comes to say.
    package var conversionType: String?
    /// `Click` or `Impression`.
    package var claimType: String?
    /// Of the campaign, not of the user: ISO 3166-1 alpha-2.
    package var countryOrRegion: String?
    package var supplyPlacement: String?
    /// Microseconds since 1970. Only for installs whose user allowed tracking before the token was made.
    package var clickedAt: Int64?
    /// Microseconds since 1970.
    package var impressionAt: Int64?
    /// The answer as it came, fields that are not known here included; nil when it is longer than `mostRawBytes`.
    package var raw: String?

    /// Nil for what is no answer: no JSON object, or one whose `attribution` is not true or false.
    package init?(_ body: [UInt8], using parser: JSONParser) {
        guard let root = try? parser.parse(body, maxDepth: Self.mostDepth), root.kind == .object,
            let attribution = root["attribution"]?.bool
        else { return nil }
        self.attribution = attribution
        orgID = Self.id(root["orgId"])
        campaignID = Self.id(root["campaignId"])
        adGroupID = Self.id(root["adGroupId"])
        keywordID = Self.id(root["keywordId"])
        adID = Self.id(root["adId"])
        creativeSetID = Self.id(root["creativeSetId"])
        conversionType = Self.text(root["conversionType"])
        claimType = Self.text(root["claimType"])
        countryOrRegion = Self.text(root["countryOrRegion"])
        supplyPlacement = Self.text(root["supplyPlacement"])
        clickedAt = root["clickDate"]?.string.flatMap(AppleDate.microseconds)
        impressionAt = root["impressionDate"]?.string.flatMap(AppleDate.microseconds)
        // The parser has checked that it is UTF-8 without U+0000.
        raw = body.count <= Self.mostRawBytes ? String(decoding: body, as: UTF8.self) : nil
    }

    /// An answer that repeats the token is kept without what repeats it: a token's text is not kept once it has ended.
    package mutating func leaveOut(token: [UInt8]) {
        // Shorter text is no token, and would be found in any answer.
        guard token.count >= Self.leastTokenBytes else { return }
        func repeats(_ text: String?) -> Bool {
            // What is shorter can't hold it, escaped or not: with Apple's answers that is all there is to it.
            guard let text, text.utf8.count >= token.count else { return false }
            let bytes = Array(text.utf8)
            return Self.holds(bytes, token) || Self.holds(Self.withPlainSlashes(bytes), token)
        }
        if repeats(raw) { raw = nil }
        if repeats(conversionType) { conversionType = nil }
        if repeats(claimType) { claimType = nil }
        if repeats(countryOrRegion) { countryOrRegion = nil }
        if repeats(supplyPlacement) { supplyPlacement = nil }
    }

    /// JSON may write a slash with a backslash before it.
    private static func withPlainSlashes(_ text: [UInt8]) -> [UInt8] {
        let (backslash, slash) = (UInt8(ascii: "\\"), UInt8(ascii: "/"))
        return text.indices.filter { index in
            text[index] != backslash || index + 1 == text.count || text[index + 1] != slash
        }.map { text[$0] }
    }

    private static func holds(_ text: [UInt8], _ part: [UInt8]) -> Bool {
        var start = 0
        while start + part.count <= text.count {
            if text[start] == part[0], text[start..<start + part.count].elementsEqual(part) { return true }
            start += 1
        }
        return false
    }

    /// A number, however it is written, as long as it is whole: the placeholder must be known in any form.
    private static func id(_ value: JSONValue?) -> Int64? {
        if let id = value?.int64 { return id }
        guard let number = value?.rawNumber.flatMap({ Double($0) }), abs(number) <= 9_007_199_254_740_992 else {
            return nil
        }
        return Int64(exactly: number)
    }

    private static func text(_ value: JSONValue?) -> String? {
        guard let text = value?.string, !text.isEmpty, text.utf8.count <= mostTextBytes else { return nil }
        return text
    }
}

/// Dates as Apple's answers write them: RFC 3339 with and without seconds (`2026-01-05T10:22Z`).
enum AppleDate {
    /// Microseconds since 1970, of whole milliseconds; nil for anything else.
    static func microseconds(_ text: String) -> Int64? {
        var bytes = Array(text.utf8)
        // Up to the minutes it is 16 bytes long.
        if bytes.count > 16, bytes[16] != UInt8(ascii: ":") { bytes.insert(contentsOf: ":00".utf8, at: 16) }
        return Timestamps.milliseconds(rfc3339: String(decoding: bytes, as: UTF8.self)).map { $0 * 1000 }
    }
}
