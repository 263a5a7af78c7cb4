import AppleAds
import JSON
import Testing

@Suite struct AttributionPayloadTests {
    private func payload(_ text: String) -> AttributionPayload? {
        AttributionPayload(Array(text.utf8), using: JSONParser())
    }

    private func verdict(_ status: Int, _ body: String = "") -> AdServicesVerdict {
        AdServicesVerdict(
            .answered(status: status, retryAfterSeconds: nil, body: Array(body.utf8)), using: JSONParser())
    }

    @Test func everyFieldOfADetailedAnswerIsRead() throws {
        let text = """
            {"attribution":true,"orgId":40669820,"campaignId":542370539,"conversionType":"Redownload","claimType":\
            "Impression","clickDate":"2026-01-05T10:22Z","impressionDate":"2026-01-05T10:21:07Z","adGroupId":542317095,\
            "countryOrRegion":"DE","keywordId":87675432,"adId":542317136,"creativeSetId":7,\
            "supplyPlacement":"APPSTORE_SEARCH_RESULTS","somethingNew":{"x":[1]}}
            """
        let read = try #require(payload(text))
        #expect(read.attribution)
        #expect(read.orgID == 40_669_820 && read.campaignID == 542_370_539 && read.adGroupID == 542_317_095)
        #expect(read.keywordID == 87_675_432 && read.adID == 542_317_136 && read.creativeSetID == 7)
        #expect(read.conversionType == "Redownload" && read.claimType == "Impression")
        #expect(read.countryOrRegion == "DE" && read.supplyPlacement == "APPSTORE_SEARCH_RESULTS")
        #expect(read.clickedAt == 1_767_608_520_000_000 && read.impressionAt == 1_767_608_467_000_000)
        #expect(read.raw == text, "what is not known yet is kept")
    }

    /// Whatever form a number has, a test install must not count as an ad's.
    @Test(arguments: ["1234567890", "1234567890.0", "1.23456789e9"])
    func thePlaceholderIsKnownInAnyForm(number: String) {
        guard case .final(.test, _) = verdict(200, #"{"attribution":true,"campaignId":\#(number)}"#) else {
            Issue.record("\(number) is \(verdict(200, #"{"attribution":true,"campaignId":\#(number)}"#))")
            return
        }
    }

    @Test(arguments: [("1.5", nil), ("1e300", nil), ("true", nil), ("9223372036854775807", Int64.max), ("-1", -1)])
    func idsAreWholeAndExact(number: String, expected: Int64?) throws {
        #expect(try #require(payload(#"{"attribution":true,"adId":\#(number)}"#)).adID == expected)
    }

    /// The text of a token is kept nowhere once it has ended, not even where an answer repeats it.
    @Test func anAnswerThatRepeatsTheTokenIsKeptWithoutIt() throws {
        let token = "abc/def+" + String(repeating: "x", count: 40)
        let escaped = token.replacing("/", with: "\\/")
        for text in [token, escaped] {
            var read = try #require(
                payload(#"{"attribution":true,"campaignId":5,"claimType":"\#(text)","conversionType":"Download"}"#))
            read.leaveOut(token: Array(String(repeating: "y", count: 40).utf8))
            #expect(read.raw != nil && read.claimType == token)
            read.leaveOut(token: Array(token.utf8))
            #expect(read.raw == nil && read.claimType == nil)
            #expect(read.campaignID == 5 && read.conversionType == "Download")
        }
    }

    @Test(arguments: [
        ("2026-01-05T10:22Z", 1_767_608_520_000_000), ("2026-01-05T10:22:31Z", 1_767_608_551_000_000),
        ("2026-01-05T10:22:31.000Z", 1_767_608_551_000_000), ("2026-01-05T10:22+01:00", 1_767_604_920_000_000),
        ("2026-02-30T10:22Z", nil), ("2026-01-05 10:22Z", nil), ("2026-01-05T10:22", nil), ("2026-01-05T10:2Z", nil),
        ("", nil), ("yesterday, at about half past ten", nil),
    ])
    func datesComeWithAndWithoutSeconds(text: String, expected: Int64?) throws {
        let read = try #require(payload(#"{"attribution":true,"clickDate":"\#(text)"}"#))
        #expect(read.clickedAt == expected)
    }

    @Test func idsKeepAll64Bits() throws {
        let read = try #require(
            payload(
                #"{"attribution":true,"campaignId":9007199254740993,"adId":9223372036854775807,"orgId":-1,"#
                    + #""keywordId":9223372036854775808,"adGroupId":1.5}"#))
        #expect(read.campaignID == 9_007_199_254_740_993)
        #expect(read.adID == .max && read.orgID == -1)
        #expect(read.keywordID == nil && read.adGroupID == nil, "no other number stands for one that doesn't fit")
    }

    @Test func whatIsAbsentOrOddIsNothing() throws {
        let read = try #require(
            payload(
                #"{"attribution":true,"campaignId":"542370539","keywordId":null,"conversionType":7,"claimType":"","#
                    + #""supplyPlacement":"\#(String(repeating: "x", count: 129))"}"#))
        #expect(read.campaignID == nil && read.keywordID == nil && read.adID == nil)
        #expect(read.conversionType == nil && read.claimType == nil && read.supplyPlacement == nil)
    }

    @Test(arguments: [
        "", "<html></html>", "{}", "[]", "true", #"{"attribution":"true"}"#, #"{"attribution":1}"#,
        #"{"attribution":null}"#, #"{"attribution":true"#, #"{"attribution":true,"x":"\u0000"}"#,
        #"{"attribution":true,"x":\#(String(repeating: "[", count: 40))\#(String(repeating: "]", count: 40))}"#,
    ])
    func whatIsNoAnswerOfApplesIsNoAnswer(text: String) {
        #expect(payload(text) == nil)
        #expect(verdict(200, text) == .notYet)
    }

    @Test func aLongAnswerIsReadAndNotKept() throws {
        let filler = String(repeating: "x", count: 4_096)
        let read = try #require(payload(#"{"attribution":false,"filler":"\#(filler)"}"#))
        #expect(!read.attribution && read.raw == nil)
    }

    @Test func statusesMeanWhatAppleSays() {
        #expect(verdict(400) == .final(.invalid, nil))
        #expect(verdict(429) == .tooMany)
        for status in [408, 425, 500, 502, 503, 504, 599] { #expect(verdict(status) == .trouble, "\(status)") }
        for status in [404, 401, 403, 410, 301, 302, 204, 201] { #expect(verdict(status) == .notYet, "\(status)") }
        guard case .final(.organic, _) = verdict(200, #"{"attribution":false,"campaignId":5}"#) else {
            Issue.record("an answer without attribution is organic, whatever else it says")
            return
        }
        guard case .final(.test, _) = verdict(200, #"{"attribution":true,"campaignId":1234567890}"#),
            case .final(.resolved, _) = verdict(200, #"{"attribution":true,"campaignId":1234567891}"#),
            case .final(.resolved, _) = verdict(200, #"{"attribution":true,"adId":1234567890}"#),
            case .final(.organic, _) = verdict(200, #"{"attribution":false,"campaignId":1234567890}"#)
        else {
            Issue.record("the placeholder is known by its campaign alone")
            return
        }
        let parser = JSONParser()
        #expect(AdServicesVerdict(.none("no route"), using: parser) == .trouble)
        #expect(AdServicesVerdict(.overlong(status: 200), using: parser) == .notYet)
        #expect(AdServicesVerdict(.overlong(status: 502), using: parser) == .trouble)
    }

    @Test func onlySilenceAndServerErrorsSpeakForAnOutage() {
        func isOutage(_ status: Int) -> Bool {
            AdServicesVerdict.isOutage(.answered(status: status, retryAfterSeconds: nil, body: []))
        }
        #expect(AdServicesVerdict.isOutage(.none("")) && isOutage(500) && isOutage(503))
        for status in [200, 400, 404, 408, 425, 429, 302] { #expect(!isOutage(status), "\(status)") }
    }
}
