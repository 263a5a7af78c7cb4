import JSON
import Testing
import Wire

@Suite struct HeaderAndAnswerTests {
    private let token = "dt_" + String(repeating: "Aa9-_x", count: 7) + "B"

    @Test func onlyADeviceTokenUnderBearerIsOne() {
        #expect(SDKAuthorization(header: nil) == .absent)
        #expect(token.utf8.count == 46)
        for value in ["Bearer \(token)", "bearer \(token)", "BEARER   \(token)", " Bearer \(token)\t"] {
            #expect(SDKAuthorization(header: value) == .deviceToken(token))
        }
    }

    @Test func everythingElseIsForeign() {
        let wrong = [
            "", " ", "Bearer", "Bearer ", token, "Basic \(token)", "Bearer\(token)", "Bearer\t\(token)",
            "Bearers \(token)",
            "Bearer \(token)x", "Bearer \(token.dropLast())", "Bearer DT_\(token.dropFirst(3))", "Bearer sk_abc",
            "Bearer \(token) \(token)", "Bearer \(token),", "Bearer \(token.dropLast())=",
            "Bearer \(token.dropLast())é",
            "Bearer  ", "\u{2}earer \(token)",
        ]
        for value in wrong { #expect(SDKAuthorization(header: value) == .foreign, "\(value)") }
    }

    @Test func reasonsForNoTokenAreAClosedSet() {
        #expect(UnattestedReason(header: nil) == nil)
        for reason in ["pending", "unsupported", "simulator", "enroll-failed"] {
            #expect(UnattestedReason(header: Array(" \(reason) ".utf8)[...])?.rawValue == reason)
        }
        for value in ["", "Pending", "other", "jailbroken", "pending, pending"] {
            #expect(UnattestedReason(header: Array(value.utf8)[...]) == .other)
        }
    }

    @Test func organizationIDsKeepToTheirRule() {
        for fine in ["a", "0", "demo", "a_b-c", String(repeating: "x", count: 63)] {
            #expect(OrganizationID(fine)?.text == fine)
        }
        for wrong in ["", "-a", "_a", "A", "a|b", "a b", "ä", "a.b", "a\n", String(repeating: "x", count: 64)] {
            #expect(OrganizationID(wrong) == nil)
        }
    }

    @Test func everyCodeHasItsStatus() {
        let statuses: [WireError.Code: Int] = [
            .malformedJSON: 400, .missingField: 400, .invalidField: 400, .attributesNotFlat: 400,
            .attributesTooLarge: 400, .bundleMismatch: 400, .invalidToken: 401, .attestationFailed: 401,
            .challengeFailed: 401, .appNotConnected: 404, .ambiguousApp: 409, .bodyTooLarge: 413, .rateLimited: 429,
            .serverError: 503, .malformedRequest: 400, .notFound: 404, .methodNotAllowed: 405,
        ]
        #expect(statuses.count == WireError.Code.allCases.count)
        for (code, status) in statuses { #expect(WireError(code, "m").status == status) }
        #expect(WireError.internalFailure.status == 500)
        #expect(WireError.internalFailure.code == .serverError)
        #expect(!WireError.internalFailure.canRetry)
        #expect(WireError.unavailable.canRetry && WireError.rateLimited.canRetry && !WireError.invalidToken.canRetry)
    }

    @Test func theAnswersAreSpelledOut() {
        let text = { (bytes: [UInt8]) in String(decoding: bytes, as: UTF8.self) }
        #expect(text(SuccessBody.ok) == #"{"ok":true}"#)
        #expect(text(SuccessBody.dropped) == #"{"ok":true,"stored":false}"#)
        #expect(text(SuccessBody.identify(id: "018f-x")) == #"{"ok":true,"id":"018f-x"}"#)
        #expect(
            text(WireError(.missingField, "a \"b\"", field: "f").errorBody)
                == #"{"ok":false,"error":"missing_field","message":"a \"b\"","field":"f"}"#)
        #expect(
            text(WireError.rateLimited.errorBody)
                == #"{"ok":false,"error":"rate_limited","message":"too many requests"}"#)
    }

    @Test func noAnswerEchoesTheInput() {
        let marker = "zq9"
        let bodies = [
            "{\"\(marker)", #"{"appUserId":"\#(marker)\n","bundleId":"b"}"#,
            #"{"appUserId":"u","bundleId":"\#(marker)/"}"#,
            Fixture.identify(attributes: #"{"\#(marker)":{}}"#), Fixture.identify(attributes: #"{"\#(marker)":1e999}"#),
        ]
        for body in bodies {
            do {
                _ = try identify(body)
                Issue.record("taken: \(body)")
            } catch {
                let answer = String(decoding: error.errorBody, as: UTF8.self)
                #expect(!answer.contains(marker))
                #expect(!error.message.contains("\n"))
            }
        }
    }
}
