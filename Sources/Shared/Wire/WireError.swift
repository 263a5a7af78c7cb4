internal import JSON

/// Why a call is refused, in the words of the SDK API. Nothing of the input is echoed: `message` is fixed text.
package struct WireError: Error, Equatable, Sendable {
    /// Raw values stand in the `error` member of the answer.
    package enum Code: String, CaseIterable, Sendable {
        case malformedJSON = "malformed_json"
        case missingField = "missing_field"
        case invalidField = "invalid_field"
        case attributesNotFlat = "attributes_not_flat"
        case attributesTooLarge = "attributes_too_large"
        case bodyTooLarge = "body_too_large"
        case invalidToken = "invalid_token"
        case bundleMismatch = "bundle_mismatch"
        case attestationFailed = "attestation_failed"
        case challengeFailed = "challenge_failed"
        case appNotConnected = "app_not_connected"
        case ambiguousApp = "ambiguous_app"
        case rateLimited = "rate_limited"
        case serverError = "server_error"
        /// The request is no HTTP that is answered here (framing, a header that is too large, a timeout).
        case malformedRequest = "malformed_request"
        case notFound = "not_found"
        case methodNotAllowed = "method_not_allowed"

        /// The HTTP status that goes with it. A 400 makes an SDK drop the call for good, a 401 makes it enrol anew, so
        /// a token of another app (`bundleMismatch`) is a 400.
        package var status: Int {
            switch self {
            case .malformedJSON, .missingField, .invalidField, .attributesNotFlat, .attributesTooLarge,
                .bundleMismatch, .malformedRequest:
                400
            case .invalidToken, .attestationFailed, .challengeFailed: 401
            case .appNotConnected, .notFound: 404
            case .methodNotAllowed: 405
            case .ambiguousApp: 409
            case .bodyTooLarge: 413
            case .rateLimited: 429
            case .serverError: 503
            }
        }
    }

    package let code: Code
    /// The HTTP status: the code's own, but for a `serverError` that a retry can't mend, which is 500.
    package let status: Int
    /// One line.
    package let message: String
    /// The field of the request, spelled as there, or of a payload (`verified.price`).
    package let field: String?

    package init(_ code: Code, _ message: String, field: String? = nil) {
        self.code = code
        self.status = code.status
        self.message = message
        self.field = field
    }

    private init(status: Int, message: String) {
        self.code = .serverError
        self.status = status
        self.message = message
        self.field = nil
    }

    /// Something that this call needs is away; the same call can work later. 503.
    package static let unavailable = WireError(status: 503, message: "temporarily unavailable, try again")
    /// A mistake of ours; the same call would fail again. 500.
    package static let internalFailure = WireError(status: 500, message: "internal error")
    package static let bodyTooLarge = WireError(.bodyTooLarge, "the body is larger than \(SDKLimits.bodyBytes) bytes")
    package static let invalidToken = WireError(.invalidToken, "the device token is not valid")
    package static let rateLimited = WireError(.rateLimited, "too many requests")
    package static let bundleMismatch = WireError(
        .bundleMismatch, "the device token belongs to another app", field: "bundleId")

    /// True when the same call can work later.
    package var canRetry: Bool { status == 429 || status == 503 }

    /// `{"ok":false,"error":…,"message":…,"field":…}`, the field only where there is one.
    package var errorBody: [UInt8] {
        var writer = JSONWriter(reservingCapacity: 128)
        writer.beginObject()
        writer.key("ok")
        writer.bool(false)
        writer.key("error")
        writer.string(code.rawValue)
        writer.key("message")
        writer.string(message)
        if let field {
            writer.key("field")
            writer.string(field)
        }
        writer.endObject()
        return writer.bytes
    }

    /// Every way in which a body is not acceptable JSON has one code, U+0000 and depth included; only short memory is
    /// not the sender's fault.
    init(_ error: JSONError) {
        self = error.code == .outOfMemory ? .unavailable : WireError(.malformedJSON, "the body is \(error.message)")
    }

    static func missing(_ field: String) -> WireError {
        WireError(.missingField, "\(field) is required", field: field)
    }
}
