internal import EventLoop
internal import HTTP
internal import Wire

extension SDKHandler {
    /// Who sent a write.
    struct Caller {
        let proof: WriteProof
        /// The app that the caller's token is of; nil without a token.
        let app: AppDirectory.App?
    }

    enum CallerFinding {
        case caller(Caller)
        case unavailable(HTTPResponse)
    }

    /// - Throws: `.invalidToken` for a token that is nobody's, whatever the reason; `.bundleMismatch` for one of another
    ///   app than the body names, which is no reason to enrol anew.
    func caller(
        _ request: HTTPRequest, _ client: PeerAddress, _ bundleID: String
    ) async throws(WireError) -> CallerFinding {
        let address = dependencies.addressHash.of(client)
        switch authorization(request) {
        case .foreign: throw .invalidToken
        case .absent:
            let reason = UnattestedReason(header: request.headers.first("x-revenuehog-unattested"))
            counters.unattested[reason?.rawValue ?? "none", default: 0] += 1
            return .caller(
                Caller(
                    proof: WriteProof(
                        attested: false, unattestedReason: reason?.rawValue, addressHash: address), app: nil))
        case .deviceToken(let token):
            let now = dependencies.loop.time.monotonicNanoseconds
            let strangers = dependencies.limits.strangers
            let finding = await dependencies.devices.find(token) {
                strangers.check(client, nowNanoseconds: now) == nil
            }
            switch finding {
            case .notLive: throw .invalidToken
            case .unavailable(let why):
                counters.lastUnavailable = why
                return .unavailable(SDKAnswer.unavailable("the device token can't be looked up now"))
            case .live(let facts):
                guard let directory = dependencies.directory.current else {
                    counters.noDirectory += 1
                    counters.lastUnavailable = "no app directory"
                    return .unavailable(SDKAnswer.unavailable("the app directory is not known yet"))
                }
                guard let app = directory.app(id: facts.appID), app.organization == facts.organization else {
                    throw .invalidToken
                }
                guard app.bundleID.utf8.elementsEqual(bundleID.utf8) else { throw .bundleMismatch }
                return .caller(
                    Caller(
                        proof: WriteProof(attested: true, deviceID: facts.deviceID, addressHash: address), app: app))
            }
        }
    }

    /// Several such headers are as foreign as one of another scheme.
    private func authorization(_ request: HTTPRequest) -> SDKAuthorization {
        let values = request.headers.all("authorization")
        guard values.count <= 1 else { return .foreign }
        return SDKAuthorization(header: values.first)
    }
}
