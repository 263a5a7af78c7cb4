import JSON
import Testing
import Wire

@Suite struct IdentifyValidationTests {
    private func userIDRefusal(_ id: String) -> String? {
        identifyRefusal(#"{"appUserId":"# + Fixture.quoted(id) + #","bundleId":"com.example.app"}"#)
    }

    private func bundleRefusal(_ id: String) -> String? {
        identifyRefusal(#"{"appUserId":"u","bundleId":"# + Fixture.quoted(id) + "}")
    }

    private func attributesRefusal(_ attributes: String) -> String? {
        identifyRefusal(Fixture.identify(attributes: attributes))
    }

    private func attributes(_ attributes: String) throws -> [String] {
        try identify(Fixture.identify(attributes: attributes)).write.attributes.map {
            "\($0.key)=\($0.value ?? "-")"
        }
    }

    @Test func theDocumentedBodyIsTakenFieldByField() throws {
        let body = """
            { "appUserId": "user_42", "bundleId": "com.example.app", "platform": "ios", "osVersion": "26.2",
              "deviceModel": "iPhone17,2", "locale": "en_US", "attributes": { "plan": "pro" } }
            """
        let validated = try identify(body)
        #expect(
            validated.write
                == IdentifyWrite(
                    appUserID: "user_42", bundleID: "com.example.app", platform: "ios", osVersion: "26.2",
                    deviceModel: "iPhone17,2", locale: "en_US", attributes: [.init(key: "plan", value: "\"pro\"")]))
        #expect(validated.ignoredFields == [])
        #expect(validated.oddities == [])
    }

    @Test func aBodyMustBeAnObjectOfJSON() {
        for body in ["", "[]", "1", "\"x\"", "null", "{", "{}}", "{\"appUserId\":\"\\ud800\"}", "{\"x\":\"\\u0000\"}"] {
            #expect(identifyRefusal(body) == "malformed_json", "\(body)")
        }
    }

    @Test func aBodyIsTakenUpTo65536Bytes() {
        let start = #"{"appUserId":"u","bundleId":"b"}"#
        let fitting = start + String(repeating: " ", count: 65_536 - start.utf8.count)
        #expect(identifyRefusal(fitting) == nil)
        #expect(identifyRefusal(fitting + " ") == "body_too_large")
    }

    @Test func theFirstFaultIsToldInADocumentedOrder() {
        #expect(identifyRefusal("{}") == "missing_field appUserId")
        #expect(identifyRefusal(#"{"appUserId":1}"#) == "missing_field bundleId", "missing comes before invalid")
        #expect(identifyRefusal(#"{"bundleId":"-"}"#) == "missing_field appUserId")
        #expect(identifyRefusal(#"{"appUserId":null,"bundleId":"b"}"#) == "missing_field appUserId")
        #expect(identifyRefusal(#"{"bundleId":"-","appUserId":1,"attributes":1}"#) == "invalid_field appUserId")
        #expect(identifyRefusal(#"{"bundleId":"-","appUserId":"u","attributes":1}"#) == "invalid_field bundleId")
        #expect(
            identifyRefusal(#"{"bundleId":"b","appUserId":"u","attributes":1}"#) == "attributes_not_flat attributes")
    }

    @Test(arguments: ["0", "null", "[]", "{}", "true", "1.5"])
    func aUserIDIsAString(_ value: String) {
        let expected = value == "null" ? "missing_field appUserId" : "invalid_field appUserId"
        #expect(identifyRefusal(#"{"bundleId":"b","appUserId":"# + value + "}") == expected)
    }

    @Test func aUserIDHas1To255Bytes() {
        #expect(userIDRefusal("") == "invalid_field appUserId")
        #expect(userIDRefusal("x") == nil)
        #expect(userIDRefusal(String(repeating: "x", count: 255)) == nil)
        #expect(userIDRefusal(String(repeating: "x", count: 256)) == "invalid_field appUserId")
        #expect(userIDRefusal(String(repeating: "é", count: 127) + "x") == nil)
        #expect(userIDRefusal(String(repeating: "é", count: 128)) == "invalid_field appUserId", "bytes, not characters")
        #expect(userIDRefusal(String(repeating: "x", count: 513)) == "invalid_field appUserId")
    }

    @Test func aUserIDIsNotBlankButIsNotTrimmedEither() throws {
        for blank in [" ", "   ", "\u{a0}", "\u{2003}\u{3000}"] {
            #expect(userIDRefusal(blank) == "invalid_field appUserId")
        }
        #expect(try identify(#"{"appUserId":" u ","bundleId":"b"}"#).write.appUserID == " u ")
    }

    @Test func aUserIDHoldsNoControlCharacter() {
        for control in ["\u{1}", "\t", "\n", "\u{1f}", "\u{7f}", "\u{80}", "\u{85}", "\u{9f}"] {
            #expect(userIDRefusal("a\(control)b") == "invalid_field appUserId")
        }
        for fine in ["\u{a0}", "¢", "ÿ", "ア", "\u{c0}", "\u{2028}"] { #expect(userIDRefusal("a\(fine)b") == nil) }
    }

    @Test(arguments: ["null", "(null)", "<null>", "nil", "undefined", "NaN", "[object Object]", "None"])
    func aStringifiedNothingIsNoUser(_ word: String) {
        #expect(userIDRefusal(word) == "invalid_field appUserId")
        #expect(userIDRefusal(word + "1") == nil)
        #expect(userIDRefusal(" " + word) == nil, "only the whole value counts")
    }

    @Test(arguments: ["0", "guest", "unknown", "Guest", "NULL", "none", "00000000-0000-0000-0000-000000000000"])
    func anOddUserIDIsTakenAndCounted(_ id: String) throws {
        let body = #"{"appUserId":"\#(id)","bundleId":"b"}"#
        #expect(try identify(body).oddities == [.oddUserID])
        #expect(try identify(body.replacing(id, with: id + "x")).oddities == [])
        #expect(Oddity.oddUserID.rawValue == "odd_user_id")
    }

    @Test func userIDsKeepTheirBytes() throws {
        for id in ["e\u{301}", "\u{e9}", "$anon_x", "a/b", "😀"] {
            let write = try identify(#"{"appUserId":"\#(id)","bundleId":"b"}"#).write
            #expect(Array(write.appUserID.utf8) == Array(id.utf8))
        }
    }

    @Test func aBundleIDHasItsPattern() {
        for fine in ["a", "9", "com.example.app", "com.example_app", "A-b.c_9", String(repeating: "b", count: 255)] {
            #expect(bundleRefusal(fine) == nil)
        }
        for wrong in ["", ".a", "-a", "_a", "a b", "a/b", "a\n", "ä", "a*", String(repeating: "b", count: 256)] {
            #expect(bundleRefusal(wrong) == "invalid_field bundleId")
        }
        #expect(identifyRefusal(#"{"appUserId":"u","bundleId":7}"#) == "invalid_field bundleId")
    }

    @Test func faultyOptionalFieldsAreIgnoredAndCounted() throws {
        let long = String(repeating: "x", count: 65)
        let body = """
            {"appUserId":"u","bundleId":"b","platform":"web","osVersion":26.2,"deviceModel":"\(long)","locale":["en"],
            "installId":"null","unknown":{"a":[1]},"jws":1}
            """
        let validated = try identify(body)
        #expect(validated.write == IdentifyWrite(appUserID: "u", bundleID: "b"))
        #expect(validated.ignoredFields == [.platform, .osVersion, .deviceModel, .locale, .installId])
    }

    @Test func nullIsAbsence() throws {
        let body = """
            {"appUserId":"u","bundleId":"b","platform":null,"osVersion":null,"deviceModel":null,"locale":null,
            "attributes":null,"installId":null}
            """
        let validated = try identify(body)
        #expect(validated.write == IdentifyWrite(appUserID: "u", bundleID: "b"))
        #expect(validated.ignoredFields == [])
    }

    @Test(arguments: ["ios": "ios", "android": "android", "iOS": nil, "web": nil, "": nil, "ios ": nil])
    func aPlatformIsOneOfTwo(_ sent: String, _ kept: String?) throws {
        let validated = try identify(#"{"appUserId":"u","bundleId":"b","platform":"\#(sent)"}"#)
        #expect(validated.write.platform == kept)
        #expect(validated.ignoredFields == (kept == nil ? [.platform] : []))
    }

    @Test(arguments: ["en_001@rg=nlzzzz", "zh-Hans_CN", "sr_Latn_RS@calendar=gregorian", "es-419", ""])
    func localesAreKeptRaw(_ locale: String) throws {
        let validated = try identify(#"{"appUserId":"u","bundleId":"b","locale":"\#(locale)"}"#)
        #expect(validated.write.locale == locale)
        #expect(validated.ignoredFields == [])
    }

    @Test func deviceFieldsHave64Scalars() throws {
        for character in ["x", "é", "😀"] {
            for count in [64, 65] {
                let text = String(repeating: character, count: count)
                let validated = try identify(#"{"appUserId":"u","bundleId":"b","osVersion":"\#(text)"}"#)
                #expect(validated.write.osVersion == (count == 64 ? text : nil))
            }
        }
    }

    @Test func attributesAreFlat() {
        for wrong in [#"{"a":{"b":1}}"#, #"{"a":[1]}"#, #"{"a":{}}"#, "[]", "1", "\"x\"", "true"] {
            #expect(attributesRefusal(wrong) == "attributes_not_flat attributes")
        }
        let deep = String(repeating: "[", count: 5000) + String(repeating: "]", count: 5000)
        #expect(attributesRefusal(#"{"a":"# + deep + "}") == "malformed_json")
        #expect(attributesRefusal("{}") == nil)
    }

    @Test func attributeValuesAreKeptAsCompactText() throws {
        #expect(
            try attributes(#"{ "s" : "a\u002fb\/\u00e9\n", "i":1, "t": true, "f":false , "n":null, "e":1e5, "z":-0 }"#)
                == [
                    #"s="a/b/é\n""#, "i=1", "t=true", "f=false", "n=-", "e=1e5", "z=-0",
                ])
        #expect(try attributes(#"{"😀":"🏳️‍🌈"}"#) == [#"😀="🏳️‍🌈""#])
        let write = try identify(Fixture.identify(attributes: #"{"😀":"🏳️‍🌈"}"#)).write
        #expect(Array((write.attributes.first?.value ?? "").utf8) == Array(#""🏳️‍🌈""#.utf8))
    }

    @Test func ofDuplicateKeysTheLastWins() throws {
        #expect(try attributes(#"{"a":1,"b":2,"\u0061":3}"#) == ["b=2", "a=3"])
        #expect(try attributes(#"{"a":{"x":1},"a":1}"#) == ["a=1"], "what lost is not looked at")
        #expect(try attributes(#"{"a":1,"a":null}"#) == ["a=-"])
        let many = (0..<2000).map { "\"k\($0 % 100)\":\($0)" }.joined(separator: ",")
        #expect(try attributes("{" + many + "}") == (0..<100).map { "k\($0)=\(1900 + $0)" })
        #expect(try identify(#"{"appUserId":1,"bundleId":"b","appUserId":"v"}"#).write.appUserID == "v")
        #expect(identifyRefusal(#"{"appUserId":"u","bundleId":"b","appUserId":null}"#) == "missing_field appUserId")
    }

    @Test func keysThatMeanSomethingElsewhereAreInert() throws {
        let keys = ["__proto__", "constructor", "prototype", "toString", "$where", "a.b", "' OR 1=1 --", "proof", " "]
        let body = "{" + keys.map { Fixture.quoted($0) + ":1" }.joined(separator: ",") + "}"
        #expect(try attributes(body) == keys.map { $0 + "=1" })
    }

    @Test func anAttributeKeyHas1To128Bytes() {
        #expect(attributesRefusal(#"{"":1}"#) == "invalid_field attributes")
        #expect(attributesRefusal("{\"\(String(repeating: "k", count: 128))\":1}") == nil)
        #expect(attributesRefusal("{\"\(String(repeating: "k", count: 129))\":1}") == "invalid_field attributes")
        #expect(attributesRefusal("{\"\(String(repeating: "é", count: 65))\":1}") == "invalid_field attributes")
        #expect(attributesRefusal("{\"\(String(repeating: "k", count: 129))\":null}") == "invalid_field attributes")
    }

    @Test func attributeNumbersAreFiniteAndHaveAtMost30Digits() throws {
        let digits = String(repeating: "1234567890", count: 3)
        for fine in [digits, "-" + digits, "0." + digits.dropFirst(), "1e308", "1e-400", "-1.7976931348623157e308"] {
            #expect(try attributes("{\"a\":\(fine)}") == ["a=\(fine)"])
        }
        for wrong in [digits + "1", "0." + digits, "1e400", "-1e400", "1E999999999", "1.8e308"] {
            #expect(attributesRefusal("{\"a\":\(wrong)}") == "invalid_field attributes")
        }
        for broken in ["NaN", "Infinity", "01", "+1"] {
            #expect(attributesRefusal("{\"a\":\(broken)}") == "malformed_json")
        }
    }

    @Test func nulAndLoneSurrogatesAreRefusedInKeysAndValues() {
        for wrong in [
            #"{"a\u0000":1}"#, #"{"a":"\u0000"}"#, #"{"a":"\ud800"}"#, #"{"\udfff":1}"#, #"{"a":"\ud800\ud800"}"#,
        ] {
            #expect(attributesRefusal(wrong) == "malformed_json")
        }
        #expect(attributesRefusal(#"{"a":"\ud83c\udff3"}"#) == nil)
    }

    @Test func attributesTakeAtMost8192CompactBytes() throws {
        #expect(Fixture.attributes(bytes: 8192).utf8.count == 8192)
        #expect(attributesRefusal(Fixture.attributes(bytes: 8192)) == nil)
        #expect(attributesRefusal(Fixture.attributes(bytes: 8193)) == "attributes_too_large attributes")
    }

    @Test(arguments: [8192, 8193])
    func theCompactFormIsWhatCounts(_ size: Int) {
        // The same value written long: spaces, needless escapes, a duplicate that lost. Every character that needs an
        // escape counts as its shortest one, deletions count as `null`, each member its comma.
        let needed = #"{"a":"\"\\\n\u0001é/","gone":null,"n":1.50,"k":""}"#
        let padding = String(repeating: "x", count: size - needed.utf8.count)
        let long = """
            { "k" : [] , "a" : "\\u0022\\u005c\\u000a\\u0001\\u00e9\\/", "gone" : null , "n" : 1.50 , "k" : "\(padding)" }
            """
        #expect(attributesRefusal(long) == (size == 8192 ? nil : "attributes_too_large attributes"))
    }
}
