package import HTTP
package import Wire

/// Answers of the SDK API. Every one, errors included, carries the CORS headers and is never cached (seed 000).
package enum SDKAnswer {
    /// On every answer.
    private static let common: [(String, String)] = [
        ("Access-Control-Allow-Origin", "*"),
        ("Access-Control-Expose-Headers", "retry-after"),
        ("Cache-Control", "no-store"),
    ]

    private static let json = HTTPHeaderBlock(common + [("Content-Type", "application/json")])

    /// Of a preflight; a day: browsers ask again that seldom.
    private static let preflight = HTTPHeaderBlock(
        common + [
            ("Access-Control-Allow-Methods", "POST, OPTIONS"),
            ("Access-Control-Allow-Headers", "authorization, content-type, x-revenuehog-unattested"),
            ("Access-Control-Max-Age", "86400"),
        ])

    package static func success(_ body: [UInt8]) -> HTTPResponse { HTTPResponse(status: 200, block: json, body: body) }

    /// The answer to `OPTIONS`.
    package static func options() -> HTTPResponse { HTTPResponse(status: 204, block: preflight) }

    package static func error(
        _ error: WireError, status: Int? = nil, headers: [(String, String)] = []
    ) -> HTTPResponse {
        HTTPResponse(
            status: status ?? error.status, block: json, headers: headers, body: error.errorBody)
    }

    /// Over a limit: a retry helps after that many seconds.
    package static func limited(seconds: Int) -> HTTPResponse {
        error(
            .rateLimited,
            headers: [("Retry-After", String(max(1, seconds)))])
    }

    /// Nothing was stored and a retry helps. The delay is jittered, so that phones don't come back all at once.
    package static func unavailable(_ message: String) -> HTTPResponse {
        error(
            WireError(.serverError, message), status: 503,
            headers: [("Retry-After", String(Int.random(in: 1...5)))])
    }
}
