import IngressCore
import Jobs
import TestSupport
import Testing
import Wire

@Suite(.timeLimit(.minutes(3))) struct BodyTests {
    private static let cap = 65_536

    /// An identify body of exactly so many bytes, filled up with white space.
    private static func padded(_ user: String, to bytes: Int) -> String {
        let body = IngressRig.identifyBody(user)
        return body + String(repeating: " ", count: bytes - body.utf8.count)
    }

    private static func chunked(_ body: String, sizes: [Int]) -> String {
        var rest = Array(body.utf8)[...]
        var text = "POST /api/sdk/v1/identify HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
        for size in sizes + [rest.count - sizes.reduce(0, +)] where size > 0 {
            text += "\(String(size, radix: 16))\r\n\(String(decoding: rest.prefix(size), as: UTF8.self))\r\n"
            rest = rest.dropFirst(size)
        }
        return text + "0\r\n\r\n"
    }

    @Test func aBodyIsTakenUpToItsCapToTheByte() async throws {
        try await IngressRig.run { rig in
            expectOK(try await rig.identify(Self.padded("a", to: Self.cap)))
            try expectError(try await rig.identify(Self.padded("b", to: Self.cap + 1)), 413, "body_too_large")
            #expect(try await rig.jobCount() == 1)
        }
    }

    @Test func aChunkedBodyIsABodyLikeAnyOther() async throws {
        try await IngressRig.run { rig in
            let small = try await rig.connect().exchange(
                Self.chunked(IngressRig.identifyBody("a"), sizes: [1, 2, 3]))
            expectOK(small)
            let whole = try await rig.connect().exchange(
                Self.chunked(Self.padded("b", to: Self.cap), sizes: [1000, 64_000]))
            expectOK(whole)
            let large = try await rig.connect()
            try? await large.send(Self.chunked(Self.padded("c", to: Self.cap + 1), sizes: [1000, 64_000]))
            try expectError(try await large.readResponse(), 413, "body_too_large")
            let users = try await rig.jobs(.write).map { try IdentifyWrite(payload: $0.payload).appUserID }
            #expect(users.sorted() == ["a", "b"])
        }
    }

    @Test func pipelinedWritesAreAnsweredInTheirOrder() async throws {
        try await IngressRig.run { rig in
            let client = try await rig.connect()
            var text = ""
            for number in 0..<40 {
                switch number % 4 {
                case 0: text += IngressRig.request(SDKRoute.identify.path, IngressRig.identifyBody("user_\(number)"))
                case 1: text += IngressRig.request(SDKRoute.attribute.path, IngressRig.attributeBody("user_\(number)"))
                case 2: text += IngressRig.request("/nowhere", "")
                default: text += IngressRig.request(SDKRoute.identify.path, "{")
                }
            }
            try await client.send(text)
            var ids: Set<String> = []
            for number in 0..<40 {
                let response = try await client.readResponse()
                #expect(response.status == [200, 200, 404, 400][number % 4], "answer \(number)")
                if number % 4 == 0 { ids.insert(response.text) }
                if number % 4 == 1 { #expect(response.text == okBody) }
            }
            #expect(ids.count == 10)
            #expect(try await rig.jobCount() == 20)
        }
    }

    // MARK: - Attributes

    private static func attributesBody(_ attributes: String) -> String {
        IngressRig.identifyBody(more: #","attributes":\#(attributes)"#)
    }

    /// The last of them are one byte longer on the wire than counted, or shorter: only the compact form counts.
    @Test(arguments: [
        (#"{"a":"\#(String(repeating: "x", count: 8_184))"}"#, true),
        (#"{"a":"\#(String(repeating: "x", count: 8_185))"}"#, false),
        (#"{"a":"\#(String(repeating: "é", count: 4_092))"}"#, true),
        (#"{"a":"\#(String(repeating: "é", count: 4_092))x"}"#, false),
        (#"{ "a" : "\#(String(repeating: "x", count: 8_184))" }"#, true),
        (#"{"a":"\#(String(repeating: #"\u0078"#, count: 8_184))"}"#, true),
        (#"{"a":"\#(String(repeating: #"\u0078"#, count: 8_185))"}"#, false),
        (#"{"a":"\#(String(repeating: #"\n"#, count: 4_092))"}"#, true),
        (#"{"a":"\#(String(repeating: #"\n"#, count: 4_092))x"}"#, false),
    ])
    func attributesAreTakenUpToTheirLimitToTheByte(attributes: String, fits: Bool) async throws {
        try await IngressRig.run { rig in
            let response = try await rig.identify(Self.attributesBody(attributes))
            if fits {
                expectOK(response)
                #expect(try await rig.onlyIdentify().write.attributes.count == 1)
            } else {
                try expectError(response, 400, "attributes_too_large", field: "attributes")
                #expect(try await rig.jobCount() == 0)
            }
        }
    }

    @Test(arguments: [
        (#"{"a":{"b":1}}"#, "attributes_not_flat", "attributes"), (#"{"a":[1]}"#, "attributes_not_flat", "attributes"),
        (#"{"a":[]}"#, "attributes_not_flat", "attributes"), (#""text""#, "attributes_not_flat", "attributes"),
        (#"{"a\u0000b":1}"#, "malformed_json", nil), (#"{"a":"\u0000"}"#, "malformed_json", nil),
        (#"{"a":"\ud800"}"#, "malformed_json", nil), (#"{"\udc00":1}"#, "malformed_json", nil),
        (#"{"a":NaN}"#, "malformed_json", nil), (#"{"a":Infinity}"#, "malformed_json", nil),
        (#"{"a":1e400}"#, "invalid_field", "attributes"),
        (#"{"a":1234567890123456789012345678901}"#, "invalid_field", "attributes"),
        (#"{"\#(String(repeating: "k", count: 129))":1}"#, "invalid_field", "attributes"),
    ])
    func attributesThatCantBeStoredAreRefused(attributes: String, code: String, field: String?) async throws {
        try await IngressRig.run { rig in
            try expectError(
                try await rig.identify(Self.attributesBody(attributes)), 400, code, field: field)
            #expect(try await rig.jobCount() == 0)
        }
    }

    @Test(arguments: [
        (#"{"a":null}"#, [IdentifyWrite.Attribute(key: "a", value: nil)]),
        (#"{"😀":"🏳️‍🌈"}"#, [.init(key: "😀", value: #""🏳️‍🌈""#)]),
        (
            #"{"__proto__":"x","constructor":1}"#,
            [.init(key: "__proto__", value: #""x""#), .init(key: "constructor", value: "1")]
        ),
        (#"{"a":1,"b":2,"a":3}"#, [.init(key: "b", value: "2"), .init(key: "a", value: "3")]),
        (#"{"n":123456789012345678901234567890}"#, [.init(key: "n", value: "123456789012345678901234567890")]),
        ("{}", []), ("null", []),
    ])
    func attributesTravelByteForByte(attributes: String, kept: [IdentifyWrite.Attribute]) async throws {
        try await IngressRig.run { rig in
            expectOK(try await rig.identify(Self.attributesBody(attributes)))
            let job = try await rig.onlyIdentify()
            #expect(job.write.attributes.map { Array($0.key.utf8) } == kept.map { Array($0.key.utf8) })
            #expect(
                job.write.attributes.map { $0.value.map { Array($0.utf8) } }
                    == kept.map { $0.value.map { Array($0.utf8) } })
        }
    }

    @Test func theLastOfDuplicateMembersWins() async throws {
        try await IngressRig.run { rig in
            let body =
                #"{"appUserId":"first","bundleId":"com.nobody.app","bundleId":"com.example.app","appUserId":"last"}"#
            expectOK(try await rig.identify(body))
            #expect(try await rig.onlyIdentify().write.appUserID == "last")
        }
    }
}
