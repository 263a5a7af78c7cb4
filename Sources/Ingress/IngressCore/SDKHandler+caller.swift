internal import EventLoop
internal import HTTP
internal import Wire

extension SDKHandler {
    /// Who sent a write.
    struct Caller: Sendable {
        let proof: WriteProof
        /// The app that the caller's token is of; nil without a token.
        let app: AppDirectory.App?
    }

    /// Goes on with a write once it is known who sent it: at once, or when its token was looked up.
    /// - Parameter body: holds nothing itself, so that only a token that has to be looked up costs a closure.
    /// - Throws: `.invalidToken` for a token that is nobody's, whatever the reason; `.bundleMismatch` for one of another
    ///   app than the body names, which is no reason to enrol anew.
    func withCaller<Write: Sendable>(
        _ call: SDKCall, _ write: Write, bundleID: String,
        _ body: @escaping @Sendable (SDKHandler, Write, Caller, SDKCall) -> HTTPResponse?
    ) throws(WireError) -> HTTPResponse? {
        switch authorization(call.request) {
        case .foreign: throw .invalidToken
        case .absent:
            let reason = UnattestedReason(header: call.request.headers.firstBytes("x-revenuehog-unattested"))
            counters.unattested[reason?.rawValue ?? "none", default: 0] += 1
            let proof = WriteProof(
                attested: false, unattestedReason: reason?.rawValue,
                addressHash: dependencies.addressHash.of(call.client))
            return body(self, write, Caller(proof: proof, app: nil), call)
        case .deviceToken(let token):
            let hash = DeviceTokens.hash(of: token)
            if let finding = dependencies.devices.remembered(hash) {
                return try withCaller(call, write, bundleID, finding, body)
            }
            dependencies.loop.spawn { [self] in
                let finding = await dependencies.devices.find(hash) { [self] in
                    let now = dependencies.loop.time.monotonicNanoseconds
                    return dependencies.limits.strangers.check(call.client, nowNanoseconds: now) == nil
                }
                resume(call) { () throws(WireError) in try withCaller(call, write, bundleID, finding, body) }
            }
            return nil
        }
    }

    private func withCaller<Write: Sendable>(
        _ call: SDKCall, _ write: Write, _ bundleID: String, _ finding: DeviceTokens.Finding,
        _ body: (SDKHandler, Write, Caller, SDKCall) -> HTTPResponse?
    ) throws(WireError) -> HTTPResponse? {
        switch finding {
        case .notLive: throw .invalidToken
        case .unavailable(let why):
            counters.lastUnavailable = why
            return SDKAnswer.unavailable("the device token can't be looked up now")
        case .live(let facts):
            guard let directory = dependencies.directory.current else {
                counters.noDirectory += 1
                counters.lastUnavailable = "no app directory"
                return SDKAnswer.unavailable("the app directory is not known yet")
            }
            guard let app = directory.app(id: facts.appID), app.organization == facts.organization else {
                throw .invalidToken
            }
            guard app.bundleID.utf8.elementsEqual(bundleID.utf8) else { throw .bundleMismatch }
            let proof = WriteProof(
                attested: true, deviceID: facts.deviceID, addressHash: dependencies.addressHash.of(call.client))
            return body(self, write, Caller(proof: proof, app: app), call)
        }
    }

    /// Several such headers are as foreign as one of another scheme.
    private func authorization(_ request: HTTPRequest) -> SDKAuthorization {
        let values = request.headers.all("authorization")
        guard values.count <= 1 else { return .foreign }
        return SDKAuthorization(header: values.first)
    }
}
