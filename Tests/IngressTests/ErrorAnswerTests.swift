import HTTP
import IngressCore
import TestSupport
import Testing

@Suite(.timeLimit(.minutes(3))) struct ErrorAnswerTests {
    @Test(arguments: [
        (#"{"bundleId":"com.example.app"}"#, "missing_field", "appUserId"),
        (#"{"appUserId":"u"}"#, "missing_field", "bundleId"),
        (#"{"appUserId":"u","bundleId":null}"#, "missing_field", "bundleId"),
        (#"{"appUserId":7,"bundleId":"com.example.app"}"#, "invalid_field", "appUserId"),
        (#"{"appUserId":"u","bundleId":"com example"}"#, "invalid_field", "bundleId"),
        (#"{"appUserId":"u","bundleId":".app"}"#, "invalid_field", "bundleId"),
        (#"{"appUserId":"u","bundleId":"com.example.app","attributes":[]}"#, "attributes_not_flat", "attributes"),
        (#"{"appUserId":"u","bundleId":"com.example.app","attributes":{"":1}}"#, "invalid_field", "attributes"),
        ("", "malformed_json", nil), ("{", "malformed_json", nil), ("[]", "malformed_json", nil),
        ("null", "malformed_json", nil), ("\"text\"", "malformed_json", nil), ("{}{}", "malformed_json", nil),
        (#"{"appUserId":"u","bundleId":"com.example.app",}"#, "malformed_json", nil),
        (#"{'appUserId':'u'}"#, "malformed_json", nil), ("\u{feff}{}", "malformed_json", nil),
    ])
    func aBadBodyIsA400ThatNamesTheField(body: String, code: String, field: String?) async throws {
        try await IngressRig.run { rig in
            try expectError(try await rig.identify(body), 400, code, field: field)
            #expect(try await rig.jobCount() == 0)
            #expect(try await rig.counters().refused == [code: 1])
        }
    }

    @Test func bytesThatAreNoUTF8AreMalformed() async throws {
        try await IngressRig.run { rig in
            let client = try await rig.connect()
            let body = Array(#"{"appUserId":"u"#.utf8) + [0xff, 0xc0] + Array(#"","bundleId":"com.example.app"}"#.utf8)
            let head =
                "POST /api/sdk/v1/identify HTTP/1.1\r\nHost: a\r\nContent-Length: \(body.count)\r\n\r\n"
            try await client.send(Array(head.utf8) + body)
            try expectError(try await client.readResponse(), 400, "malformed_json")
        }
    }

    @Test func attributeNamesItsOwnRequiredField() async throws {
        try await IngressRig.run { rig in
            try expectError(
                try await rig.attribute(IngressRig.identifyBody()), 400, "missing_field",
                field: "originalTransactionId")
        }
    }

    @Test(arguments: ["/", "/api/sdk/v1", "/api/sdk/v1/identify/", "/api/sdk/v1/Identify", "/api/sdk/v2/identify"])
    func anotherPathIsA404(path: String) async throws {
        try await IngressRig.run { rig in
            try expectError(try await rig.post(path, IngressRig.identifyBody()), 404, "not_found")
            let preflight = try await rig.connect().exchange("OPTIONS \(path) HTTP/1.1\r\nHost: a\r\n\r\n")
            try expectError(preflight, 404, "not_found")
        }
    }

    @Test(arguments: ["GET", "PUT", "PATCH", "DELETE"], [SDKRoute.identify.path, SDKRoute.attribute.path])
    func anotherMethodIsA405ThatSaysWhichAreAllowed(method: String, path: String) async throws {
        try await IngressRig.run { rig in
            let response = try await rig.connect().exchange("\(method) \(path) HTTP/1.1\r\nHost: a\r\n\r\n")
            try expectError(response, 405, "method_not_allowed")
            #expect(response.first("allow") == "POST, OPTIONS")
        }
    }

    @Test func headIsA405WithoutABody() async throws {
        try await IngressRig.run { rig in
            let response = try await rig.connect().exchange(
                "HEAD /api/sdk/v1/identify HTTP/1.1\r\nHost: a\r\n\r\n", toHEAD: true)
            #expect(response.status == 405)
            #expect(response.first("allow") == "POST, OPTIONS")
            expectCommonHeaders(response)
        }
    }

    @Test(arguments: [SDKRoute.identify.path, SDKRoute.attribute.path])
    func optionsTellsABrowserWhatItMaySend(path: String) async throws {
        try await IngressRig.run { rig in
            let response = try await rig.connect().exchange(
                "OPTIONS \(path) HTTP/1.1\r\nHost: a\r\nOrigin: https://shop.example\r\n"
                    + "Access-Control-Request-Method: POST\r\nAccess-Control-Request-Headers: authorization\r\n\r\n")
            #expect(response.status == 204)
            #expect(response.body.isEmpty)
            expectCommonHeaders(response)
            #expect(response.first("access-control-allow-methods") == "POST, OPTIONS")
            #expect(
                response.first("access-control-allow-headers")
                    == "authorization, content-type, x-revenuehog-unattested")
        }
    }

    @Test func aTokenThatIsNobodysIsA401() async throws {
        try await IngressRig.run { rig in
            let token = "Bearer " + IngressRig.nobodysToken
            try expectError(
                try await rig.identify(IngressRig.identifyBody(), [("Authorization", token)]), 401, "invalid_token")
            #expect(try await rig.jobCount() == 0)
        }
    }

    /// What the server answers before there is a request to hand over, in the API's own form all the same.
    @Test(arguments: [
        ("nonsense\r\n\r\n", 400, "malformed_request"),
        ("POST /api/sdk/v1/identify HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}", 400, "malformed_request"),
        ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +2\r\n\r\n{}", 400, "malformed_request"),
        ("POST / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400, "malformed_request"),
        (
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n", 400,
            "malformed_request"
        ),
        ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 65537\r\n\r\n", 413, "body_too_large"),
        ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999999999999\r\n\r\n", 413, "body_too_large"),
        ("GET /\(String(repeating: "a", count: 9_000)) HTTP/1.1\r\nHost: a\r\n\r\n", 414, "malformed_request"),
        (
            "GET / HTTP/1.1\r\nHost: a\r\nX: \(String(repeating: "a", count: 20_000))\r\n\r\n", 431,
            "malformed_request"
        ),
        ("POST / HTTP/1.1\r\nHost: a\r\nExpect: 200-ok\r\nContent-Length: 2\r\n\r\n", 417, "malformed_request"),
        ("BREW / HTTP/1.1\r\nHost: a\r\n\r\n", 501, "method_not_allowed"),
        ("GET / HTTP/9.9\r\nHost: a\r\n\r\n", 505, "malformed_request"),
    ])
    func aRequestThatIsNoHTTPGetsTheSameAnswerForm(request: String, status: Int, code: String) async throws {
        try await IngressRig.run { rig in
            let client = try await rig.connect()
            try await client.send(request)
            let response = try await client.readResponse()
            try expectError(response, status, code)
            #expect(response.first("connection") == "close")
            #expect(try await client.readToEnd().isEmpty)
        }
    }

    @Test func aBodyThatNeverComesIsRetryable() async throws {
        try await IngressRig.run({ $0.http.bodyTimeoutMilliseconds = 50 }) { rig in
            let client = try await rig.connect()
            try await client.send("POST /api/sdk/v1/identify HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n{")
            try expectError(try await client.readResponse(), 503, "server_error")
        }
    }

    @Test func aConnectionTooManyIsToldWhenToComeBack() async throws {
        try await IngressRig.run({ $0.http.maxConnections = 1 }) { rig in
            let first = try await rig.connect()
            _ = try await first.exchange(IngressRig.request("/", ""))
            try expectUnavailable(try await rig.connect().readResponse())
        }
    }
}
