import Foundation
import TestSupport
import Testing

/// What every answer carries, whatever it says: without these a browser can't even read an error.
func expectCommonHeaders(_ response: RawHTTPClient.Response, sourceLocation: SourceLocation = #_sourceLocation) {
    for (name, value) in [
        ("access-control-allow-origin", "*"), ("access-control-expose-headers", "retry-after"),
        ("cache-control", "no-store"),
    ] {
        #expect(
            response.headers.filter { $0.name == name }.map(\.value) == [value], "\(name) of a \(response.status)",
            sourceLocation: sourceLocation)
    }
}

/// An error's status, its body's members, all of them, and what every answer carries.
func expectError(
    _ response: RawHTTPClient.Response, _ status: Int, _ code: String, field: String? = nil,
    sourceLocation: SourceLocation = #_sourceLocation
) throws {
    #expect(response.status == status, "\(response.text)", sourceLocation: sourceLocation)
    expectCommonHeaders(response, sourceLocation: sourceLocation)
    #expect(response.first("content-type") == "application/json", sourceLocation: sourceLocation)
    let body = try #require(
        try JSONSerialization.jsonObject(with: Data(response.body)) as? [String: Any], sourceLocation: sourceLocation)
    #expect(body["ok"] as? Bool == false, sourceLocation: sourceLocation)
    #expect(body["error"] as? String == code, sourceLocation: sourceLocation)
    let message = body["message"] as? String ?? ""
    #expect(!message.isEmpty && !message.contains("\n"), sourceLocation: sourceLocation)
    #expect(body["field"] as? String == field, sourceLocation: sourceLocation)
    #expect(body.count == (field == nil ? 3 : 4), sourceLocation: sourceLocation)
    if status == 429 || status == 503 {
        let seconds = response.first("retry-after").flatMap { Int($0) }
        #expect((seconds ?? 0) >= 1, "retry-after of a \(status)", sourceLocation: sourceLocation)
    } else {
        #expect(response.first("retry-after") == nil, sourceLocation: sourceLocation)
    }
}

/// A 503 that says when to come back.
func expectUnavailable(
    _ response: RawHTTPClient.Response, sourceLocation: SourceLocation = #_sourceLocation
) throws {
    try expectError(response, 503, "server_error", sourceLocation: sourceLocation)
}

func expectLimited(
    _ response: RawHTTPClient.Response, seconds: ClosedRange<Int>, sourceLocation: SourceLocation = #_sourceLocation
) throws {
    try expectError(response, 429, "rate_limited", sourceLocation: sourceLocation)
    let stated = response.first("retry-after").flatMap { Int($0) } ?? 0
    #expect(seconds.contains(stated), "retry-after: \(stated)", sourceLocation: sourceLocation)
}

/// A 200 with exactly this body.
func expectOK(
    _ response: RawHTTPClient.Response, _ body: String? = nil, sourceLocation: SourceLocation = #_sourceLocation
) {
    #expect(response.status == 200, "\(response.text)", sourceLocation: sourceLocation)
    expectCommonHeaders(response, sourceLocation: sourceLocation)
    #expect(response.first("content-type") == "application/json", sourceLocation: sourceLocation)
    if let body { #expect(response.text == body, sourceLocation: sourceLocation) }
}

/// The bodies of a write that was taken and of one that was dropped.
let okBody = #"{"ok":true}"#
let droppedBody = #"{"ok":true,"stored":false}"#
