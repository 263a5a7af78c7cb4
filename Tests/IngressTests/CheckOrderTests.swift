import EventLoop
import IngressCore
import TestSupport
import Testing

/// Size → JSON → fields → Authorization → bundle → limit, each before all that follow.
@Suite(.timeLimit(.minutes(3))) struct CheckOrderTests {
    private static let anyToken = ("Authorization", "Bearer " + IngressRig.nobodysToken)
    private static let unknown = IngressRig.identifyBody("u", bundle: "com.nobody.app")

    @Test func sizeComesBeforeJSONAndFields() async throws {
        try await IngressRig.run { rig in
            let body = "{" + String(repeating: "x", count: 65_536)
            try expectError(try await rig.identify(body, [Self.anyToken]), 413, "body_too_large")
        }
    }

    @Test(arguments: [
        ("{", "malformed_json", nil), (#"{"appUserId":"u"}"#, "missing_field", "bundleId"),
        (#"{"appUserId":"null","bundleId":"a.b"}"#, "invalid_field", "appUserId"),
        (#"{"appUserId":"u","bundleId":"a.b","attributes":{"a":{}}}"#, "attributes_not_flat", "attributes"),
    ])
    func aBodyIsJudgedBeforeWhoSentIt(body: String, code: String, field: String?) async throws {
        try await IngressRig.run { rig in
            try expectError(try await rig.identify(body, [Self.anyToken]), 400, code, field: field)
        }
    }

    @Test(arguments: [
        ("{", "malformed_json", nil), (IngressRig.identifyBody(), "missing_field", "originalTransactionId"),
        (IngressRig.attributeBody(transaction: "a b"), "invalid_field", "originalTransactionId"),
    ])
    func aLinkIsJudgedBeforeWhoSentIt(body: String, code: String, field: String?) async throws {
        try await IngressRig.run { rig in
            try expectError(try await rig.attribute(body, [Self.anyToken]), 400, code, field: field)
        }
    }

    @Test(arguments: [
        "Bearer dt_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", "Bearer dt_short", "Bearer", "Bearer ", "",
        "bearer dt_x", "Basic dXNlcjpwYXNz", "sk_live_123", "dt_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
        "Bearer eyJhIjoxfQ.eyJiIjoyfQ.c2ln",
    ])
    func anyAuthorizationIsA401WhateverTheBundle(value: String) async throws {
        try await IngressRig.run { rig in
            for body in [IngressRig.identifyBody(), Self.unknown] {
                try expectError(
                    try await rig.identify(body, [("Authorization", value)]), 401, "invalid_token")
            }
            try expectError(
                try await rig.attribute(IngressRig.attributeBody(), [("authorization", value)]), 401, "invalid_token")
            #expect(try await rig.jobCount() == 0)
            let part = rig.parts[0]
            #expect(try await part.loop.run { part.ingress.drops.total } == 0)
        }
    }

    @Test func twoAuthorizationHeadersAreA401() async throws {
        try await IngressRig.run { rig in
            try expectError(
                try await rig.identify(IngressRig.identifyBody(), [Self.anyToken, Self.anyToken]), 401,
                "invalid_token")
            try expectError(
                try await rig.identify(IngressRig.identifyBody(), [("Authorization", ""), Self.anyToken]), 401,
                "invalid_token")
        }
    }

    @Test func theCallerIsJudgedBeforeTheBundle() async throws {
        try await IngressRig.run({ $0.apps = nil }) { rig in
            try expectError(try await rig.identify("{"), 400, "malformed_json")
            try expectError(
                try await rig.identify(IngressRig.identifyBody(), [Self.anyToken]), 401, "invalid_token")
            try expectUnavailable(try await rig.identify(IngressRig.identifyBody()))
        }
    }

    @Test func onlyAWriteThatIsStoredCostsTheDevicesLimit() async throws {
        try await IngressRig.run({ $0.unattestedPerMinute = 1 }) { rig in
            let body = IngressRig.identifyBody("u")
            for _ in 0..<3 {
                try expectError(
                    try await rig.identify(IngressRig.identifyBody("u", more: #","attributes":[]"#)), 400,
                    "attributes_not_flat", field: "attributes")
                try expectError(try await rig.identify(body, [Self.anyToken]), 401, "invalid_token")
                expectOK(try await rig.identify(Self.unknown), droppedBody)
            }
            expectOK(try await rig.identify(body))
            try expectLimited(try await rig.identify(body), seconds: 1...60)
            // Nobody's bundle stands before the limit.
            expectOK(try await rig.identify(Self.unknown), droppedBody)
        }
    }

    @Test func theAddressGuardStandsBeforeEverything() async throws {
        try await IngressRig.run({ $0.addressPerMinute = 1 }) { rig in
            try expectError(try await rig.identify("{"), 400, "malformed_json")
            try expectLimited(try await rig.identify("{"), seconds: 1...60)
            // What costs nothing is not counted.
            let preflight = try await rig.connect().exchange(
                "OPTIONS /api/sdk/v1/identify HTTP/1.1\r\nHost: a\r\n\r\n")
            #expect(preflight.status == 204)
            #expect(try await rig.counters().addressLimited == 1)
        }
    }
}
