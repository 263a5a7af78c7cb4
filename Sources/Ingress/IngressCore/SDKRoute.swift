internal import HTTP

/// What the SDK API answers; raw values stand in metrics.
package enum SDKRoute: String, CaseIterable, Sendable {
    case identify, attribute
    case adServices = "adservices"
    case challenge, attest
    /// Everything else: paths come from strangers, who could fill metrics with them.
    case other

    /// Empty for `other`.
    package var path: String { constantPath.description }

    private var constantPath: StaticString {
        switch self {
        case .identify: "/api/sdk/v1/identify"
        case .attribute: "/api/sdk/v1/attribute"
        case .adServices: "/api/sdk/v1/adservices"
        case .challenge: "/api/sdk/v1/attest/challenge"
        case .attest: "/api/sdk/v1/attest"
        case .other: ""
        }
    }

    /// The usual ones first.
    private static let known: [SDKRoute] = [.identify, .attribute, .adServices, .attest, .challenge]

    init(_ head: HTTPRequestHead) {
        for route in Self.known where head.isPath(route.constantPath) {
            self = route
            return
        }
        self = .other
    }
}
