package import AppleAds
package import HTTPClient

/// Apple's own endpoint, or what stands for it in development. Source: Apple, AAAttribution.attributionToken(): the body
/// is the token and nothing else.
package struct AppleEndpoint: AdServicesEndpoint {
    private let caller: HTTPCaller
    private let url: String

    package init(caller: HTTPCaller, url: String) {
        self.caller = caller
        self.url = url
    }

    package func ask(_ token: [UInt8], tell: @escaping @Sendable (AdServicesReply) -> Void) {
        caller.post(token, to: url) { tell(Self.reply($0)) }
    }

    private static func reply(_ result: HTTPCallResult) -> AdServicesReply {
        switch result {
        case .answered(let answer):
            return .answered(
                status: answer.status, retryAfterSeconds: answer.retryAfterSeconds, body: answer.body)
        case .failed(let failure):
            if case .tooLong(let status) = failure.code { return .overlong(status: status) }
            return .none(failure.message)
        }
    }
}
