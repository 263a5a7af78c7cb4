import Bytes
import JSON
import Testing
import Wire

@Suite struct AdServicesTests {
    private static let token = Fixture.adServicesToken

    private func body(
        bundle: String? = #""com.example.app""#, install: String? = #""i-1""#, token: String? = #""\#(token)""#,
        more: String = ""
    ) -> String {
        let members = [("bundleId", bundle), ("installId", install), ("token", token)].compactMap { name, value in
            value.map { #""\#(name)":\#($0)"# }
        }
        return "{" + members.joined(separator: ",") + more + "}"
    }

    @Test func theSeedsBodyIsTaken() throws {
        let validated = try adServices(Fixture.adServices)
        #expect(
            validated.write
                == AdServicesCall(
                    bundleID: "com.example.app", installID: "1b7a2c00-0000-4000-8000-00000000000a", token: Self.token,
                    appVersion: "2.4.0", storefront: "USA", environment: .production))
        #expect(validated.ignoredFields.isEmpty && validated.oddities.isEmpty)
    }

    @Test func theFirstFaultIsTold() {
        #expect(adServicesRefusal("{") == "malformed_json")
        #expect(adServicesRefusal("[]") == "malformed_json")
        #expect(adServicesRefusal("{}") == "missing_field bundleId")
        #expect(adServicesRefusal(body(bundle: "7", install: nil)) == "missing_field installId")
        #expect(adServicesRefusal(body(bundle: "7", install: "7", token: nil)) == "missing_field token")
        #expect(adServicesRefusal(body(token: "null")) == "missing_field token")
        #expect(adServicesRefusal(body(bundle: "7", install: "7", token: "7")) == "invalid_field bundleId")
        #expect(adServicesRefusal(body(install: "7", token: "7")) == "invalid_field installId")
        #expect(adServicesRefusal(body(token: "7")) == "invalid_field token")
        let large = #","pad":""# + String(repeating: "x", count: SDKLimits.bodyBytes) + #"""#
        #expect(adServicesRefusal(body(more: large)) == "body_too_large")
    }

    @Test(arguments: [
        "", " ", "null", "(null)", "[object Object]", "NaN", #"a\u0001b"#, String(repeating: "x", count: 256),
    ])
    func anInstallIDIsHeldToTheRuleOfUserIDs(id: String) {
        #expect(adServicesRefusal(body(install: #""\#(id)""#)) == "invalid_field installId")
    }

    @Test func anOddInstallIDIsTakenAndCounted() throws {
        let validated = try adServices(body(install: #""Unknown""#))
        #expect(validated.write.installID == "Unknown" && validated.oddities == [.oddInstallID])
    }

    /// Apple's own sample has blanks inside, from where its lines were broken.
    @Test func whiteSpaceOfATokenIsTakenOffWhereverItIs() throws {
        let spaced = #""  \#(Self.token.prefix(20))\r\n \t\#(Self.token.dropFirst(20))\n""#
        #expect(try adServices(body(token: spaced)).write.token == Self.token)
        let url = Self.token.replacing("+", with: "-").replacing("/", with: "_") + "=="
        #expect(try adServices(body(token: #""\#(url)""#)).write.token == url)
        #expect(try adServices(body(token: #""\#(Self.token.replacing("/", with: "\\/"))""#)).write.token == Self.token)
    }

    @Test func aTokenHas32To4096CharactersOfBase64() {
        func refused(_ token: String) -> Bool {
            adServicesRefusal(body(token: #""\#(token)""#)) == "invalid_field token"
        }
        #expect(!refused(String(repeating: "A", count: 32)) && !refused(String(repeating: "A", count: 4096)))
        #expect(refused(String(repeating: "A", count: 31)) && refused(String(repeating: "A", count: 4097)))
        // White space does not count.
        #expect(refused(String(repeating: "A ", count: 31)) && !refused(String(repeating: "A ", count: 4096)))
        for wrong in ["\u{a0}", "é", ".", "\\\"", "%", "\\u0007", "{", "*"] {
            #expect(refused(Self.token + wrong), "\(wrong)")
        }
        for wrong in ["7", "true", "[]", "{}", #"["\#(Self.token)"]"#] {
            #expect(adServicesRefusal(body(token: wrong)) == "invalid_field token")
        }
    }

    @Test func optionalFieldsOfAnotherFormAreIgnoredAndCounted() throws {
        let good = try adServices(body(more: #","appVersion":"2 (7)","storefront":"us","environment":"sandBox""#))
        #expect(good.write.appVersion == "2 (7)" && good.write.storefront == "us" && good.ignoredFields.isEmpty)
        #expect(good.write.environment == .sandbox)
        let bad = try adServices(body(more: #","environment":7,"storefront":"U5A","appVersion":{}"#))
        #expect(bad.write.appVersion == nil && bad.write.storefront == nil && bad.write.environment == .production)
        #expect(bad.ignoredFields == [.appVersion, .storefront, .environment])
        for wrong in ["", "U", "USAA", "ÜS", "U "] {
            #expect(try adServices(body(more: #","storefront":"\#(wrong)""#)).write.storefront == nil, "\(wrong)")
        }
        let long = String(repeating: "1", count: 65)
        #expect(try adServices(body(more: #","appVersion":"\#(long)""#)).ignoredFields == [.appVersion])
        #expect(try adServices(body(more: #","appVersion":null,"environment":null"#)).ignoredFields.isEmpty)
    }

    @Test(arguments: [
        ("Production", AdServicesWrite.Environment.production), ("production", .production), ("XCODE", .xcode),
        ("Sandbox", .sandbox), ("sandbox ", .production), ("", .production), ("LocalTesting", .production),
    ])
    func anEnvironmentIsKnownInAnyCase(sent: String, environment: AdServicesWrite.Environment) throws {
        #expect(try adServices(body(more: #","environment":"\#(sent)""#)).write.environment == environment)
    }

    // MARK: - Folding

    @Test func anInstallIDOfUUIDShapeIsFoldedAndNoOther() {
        let uuid = "1b7a2c00-0000-4000-8000-00000000000f"
        #expect(TextRules.foldedInstallID(uuid) == "1B7A2C00-0000-4000-8000-00000000000F")
        #expect(TextRules.foldedInstallID(uuid.uppercased()) == uuid.uppercased())
        for other in [
            "$anon_" + uuid, uuid + "0", String(uuid.dropLast()), uuid.replacing("-", with: ""), "{\(uuid)}",
            uuid.replacing("f", with: "g"), "abc", "", "user_a", "1b7a2c0-00000-4000-8000-00000000000f",
            "1b7a2c00-0000-4000-8000-0000000000é",
        ] {
            #expect(TextRules.foldedInstallID(other).utf8.elementsEqual(other.utf8), "\(other)")
        }
    }

    // MARK: - Sealing

    private let sealer = AdServicesToken.sealer(secret: Array(repeating: 1, count: 32))

    private func sealed(_ install: String = "i-1", organization: String = "demo") -> AdServicesWrite {
        AdServicesCall(bundleID: "com.example.app", installID: install, token: Self.token)
            .sealed(by: sealer, organization: organization, proof: WriteProof(unattestedReason: "pending"))
    }

    @Test func aTokenOpensForItsOwnAppAndInstallAlone() {
        let write = sealed("1b7a2c00-0000-4000-8000-00000000000f")
        func open(_ organization: String, _ bundle: String, _ subject: String) -> [UInt8]? {
            sealer.open(
                write.sealedToken,
                context: AdServicesToken.context(organization: organization, bundleID: bundle, subject: subject))
        }
        let subject = "1B7A2C00-0000-4000-8000-00000000000F"
        #expect(write.subject == subject && write.installID == subject.lowercased())
        #expect(open("demo", "com.example.app", subject) == Array(Self.token.utf8))
        #expect(open("other", "com.example.app", subject) == nil)
        #expect(open("demo", "com.example.ap", "p" + subject) == nil)
        #expect(open("demo", "com.example.app", subject.lowercased()) == nil)
        #expect(
            AdServicesToken.sealer(secret: Array(repeating: 2, count: 32))
                .open(
                    write.sealedToken,
                    context: AdServicesToken.context(
                        organization: "demo", bundleID: "com.example.app", subject: subject)) == nil)
    }

    @Test func aPayloadReadsLikeTheRequestButForTheToken() throws {
        var write = sealed()
        write.appVersion = "2.4.0"
        write.environment = .xcode
        let payload = write.encodePayload()
        let text = String(decoding: payload, as: UTF8.self)
        #expect(
            text == #"{"bundleId":"com.example.app","installId":"i-1","sealedToken":""#
                + Base64.encode(write.sealedToken, .standard)
                + #"","appVersion":"2.4.0","environment":"Xcode","proof":{"attested":false,"unattestedReason":"pending"}}"#
        )
        #expect(try AdServicesWrite(payload: payload) == write)
        #expect(!text.contains(Self.token.prefix(16)))
    }

    @Test func whatTheDoorWouldRefuseDoesNotComeInBehindIt() {
        let good = String(decoding: sealed().encodePayload(), as: UTF8.self)
        func fault(_ payload: String) -> String? {
            refusal { () throws(WireError) in _ = try AdServicesWrite(payload: Array(payload.utf8)) }
        }
        #expect(fault(good) == nil)
        let changes: [(String, String, String)] = [
            (#""i-1""#, #""null""#, "invalid_field installId"), (#""i-1""#, "7", "invalid_field installId"),
            (#""com.example.app""#, #""com example""#, "invalid_field bundleId"),
            (#""Production""#, #""production""#, "invalid_field environment"),
            (#","environment":"Production""#, "", "missing_field environment"),
            (#""sealedToken":""#, #""sealedToken":"*"#, "invalid_field sealedToken"),
            (#""sealedToken""#, #""token""#, "invalid_field"),
            (#""i-1""#, #""i-1","storefront":"X1""#, "invalid_field storefront"),
        ]
        for (old, new, expected) in changes { #expect(fault(good.replacing(old, with: new)) == expected, "\(new)") }
        func fault(sealedBytes count: Int) -> String? {
            var write = sealed()
            write.sealedToken = Array(repeating: 1, count: count)
            return fault(String(decoding: write.encodePayload(), as: UTF8.self))
        }
        #expect(fault(sealedBytes: 61) == nil && fault(sealedBytes: 4125) == nil)
        #expect(fault(sealedBytes: 60) != nil && fault(sealedBytes: 4126) != nil)
    }
}
