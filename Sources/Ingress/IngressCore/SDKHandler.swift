package import Bytes
package import EventLoop
package import HTTP
internal import JSON
package import Jobs
package import RedisQueue
package import Service
internal import Wire

/// The SDK API on one event loop: routes, checks in the documented order, and the way into the queue.
///
/// Order of checks (design: size → JSON → fields → Authorization → bundle → limit): a call that is refused early
/// costs nothing later, and a 400 never depends on who asks.
///
/// `@unchecked Sendable`: `parser`, `counters` and `requests` are touched on the loop's thread alone; handlers run
/// there, and no parsed value outlives the synchronous part in which it was parsed.
package final class SDKHandler: @unchecked Sendable {
    /// What the handler needs. All of it lives on the same loop.
    package struct Dependencies {
        package var loop: EventLoop
        package var sink: any JobSink
        package var directory: DirectoryWatcher
        /// Dropped writes by bundle.
        package var drops: CountForwarder
        /// Steps of enrolments.
        package var enrolments: CountForwarder
        package var addresses: AddressGuard
        package var clients: ClientAddress
        package var addressHash: AddressHash
        package var log: Log
        package var devices: DeviceTokens
        package var challenges: Challenges
        /// Seals AdServices tokens.
        package var sealer: TextSealer
        package var asker: Asker
        package var limits: CallLimits

        package init(
            loop: EventLoop, sink: any JobSink, directory: DirectoryWatcher, drops: CountForwarder,
            enrolments: CountForwarder, addresses: AddressGuard, clients: ClientAddress, addressHash: AddressHash,
            log: Log, devices: DeviceTokens, challenges: Challenges, sealer: TextSealer, asker: Asker,
            limits: CallLimits
        ) {
            self.loop = loop
            self.sink = sink
            self.directory = directory
            self.drops = drops
            self.enrolments = enrolments
            self.addresses = addresses
            self.clients = clients
            self.addressHash = addressHash
            self.log = log
            self.devices = devices
            self.challenges = challenges
            self.sealer = sealer
            self.asker = asker
            self.limits = limits
        }
    }

    package internal(set) var counters = IngressCounters()

    let dependencies: Dependencies
    let parser = JSONParser()
    private let requestIDs: RequestIDs

    package static let identifyPath = "/api/sdk/v1/identify"
    package static let attributePath = "/api/sdk/v1/attribute"
    package static let adServicesPath = "/api/sdk/v1/adservices"
    package static let challengePath = "/api/sdk/v1/attest/challenge"
    package static let attestPath = "/api/sdk/v1/attest"
    private static let paths: Set<String> = [
        identifyPath, attributePath, adServicesPath, challengePath, attestPath,
    ]

    package init(_ dependencies: Dependencies) {
        self.dependencies = dependencies
        requestIDs = RequestIDs()
    }

    /// Answers one request. Runs on the loop.
    package func handle(_ request: HTTPRequest) async -> HTTPResponse {
        dependencies.loop.preconditionInLoop()
        let started = dependencies.loop.time.monotonicNanoseconds
        let requestID = requestIDs.id(for: request)
        var response = await route(request)
        response.headers.append(("X-Request-Id", requestID))
        if response.status >= 500 {
            counters.count(refusal: .serverError)
            dependencies.log.limited(
                .warn, "a call could not be served",
                ["status": response.status, "requestId": requestID, "reason": counters.lastUnavailable ?? ""])
        }
        counters.count(
            path: request.path, status: response.status,
            nanoseconds: dependencies.loop.time.monotonicNanoseconds - started)
        return response
    }

    /// The answer to a request that never became one, in the API's own form.
    package static func failure(_ failure: HTTPFailure, _ head: HTTPRequestHead?) -> HTTPResponse {
        // What a retry mends says so: to an SDK a 408 is as final as a 400, and the write of a phone on a bad line would
        // be gone for good.
        if failure.code == .tooManyConnections || failure.code == .requestTimeout {
            return SDKAnswer.unavailable(failure.message)
        }
        let code: WireError.Code =
            switch failure.code {
            case .bodyTooLarge: .bodyTooLarge
            case .methodNotImplemented: .methodNotAllowed
            case .invalidResponse, .tooManyConnections: .serverError
            case .requestTimeout, .malformedRequest, .targetTooLong, .expectationFailed, .headerTooLarge,
                .versionNotSupported:
                .malformedRequest
            }
        return SDKAnswer.error(WireError(code, failure.message), status: failure.status)
    }

    private func route(_ request: HTTPRequest) async -> HTTPResponse {
        guard Self.paths.contains(request.path) else {
            counters.count(refusal: .notFound)
            return SDKAnswer.error(WireError(.notFound, "there is no such path"))
        }
        switch request.method {
        case .options: return SDKAnswer.options()
        case .post: break
        default:
            counters.count(refusal: .methodNotAllowed)
            return SDKAnswer.error(
                WireError(.methodNotAllowed, "only POST and OPTIONS are answered here"),
                headers: [("Allow", "POST, OPTIONS")])
        }
        let client = dependencies.clients.of(request)
        let now = dependencies.loop.time.monotonicNanoseconds
        if let seconds = dependencies.addresses.check(client, nowNanoseconds: now) {
            counters.addressLimited += 1
            counters.count(refusal: .rateLimited)
            return SDKAnswer.limited(seconds: seconds)
        }
        do {
            return switch request.path {
            case Self.identifyPath: try await identify(request, client)
            case Self.attributePath: try await attribute(request, client)
            case Self.adServicesPath: try await adServices(request, client)
            case Self.challengePath: challenge(client)
            default: try await attest(request, client)
            }
        } catch {
            counters.count(refusal: error.code)
            return SDKAnswer.error(error)
        }
    }

    private func identify(_ request: HTTPRequest, _ client: PeerAddress) async throws(WireError) -> HTTPResponse {
        var validated = try Validated<IdentifyWrite>(body: request.body, using: parser)
        counters.note(ignored: validated.ignoredFields, oddities: validated.oddities)
        let caller: Caller
        switch try await self.caller(request, client, validated.write.bundleID) {
        case .caller(let known): caller = known
        case .unavailable(let response): return response
        }
        validated.write.proof = caller.proof
        let write = validated.write
        return try await submit(
            .identify, .write, write.bundleID, write.appUserID, caller, request, { _ in write.encodePayload() }
        ) {
            SuccessBody.identify(id: UUIDv8.customer(organization: $0, appUserID: write.appUserID).description)
        }
    }

    private func attribute(_ request: HTTPRequest, _ client: PeerAddress) async throws(WireError) -> HTTPResponse {
        var validated = try Validated<AttributeWrite>(body: request.body, using: parser)
        counters.note(ignored: validated.ignoredFields, oddities: validated.oddities)
        let caller: Caller
        switch try await self.caller(request, client, validated.write.bundleID) {
        case .caller(let known): caller = known
        case .unavailable(let response): return response
        }
        validated.write.proof = caller.proof
        let write = validated.write
        // Only a signature needs the verifier; everything else goes straight to the writer.
        var lane = Lane.write
        if case .unverified = write.evidence { lane = .verify }
        return try await submit(
            .attribute, lane, write.bundleID, write.appUserID, caller, request, { _ in write.encodePayload() }
        ) { _ in SuccessBody.ok }
    }

    /// The answer never tells what became of the token: whether one came before is not the caller's to know.
    private func adServices(_ request: HTTPRequest, _ client: PeerAddress) async throws(WireError) -> HTTPResponse {
        let validated = try Validated<AdServicesCall>(body: request.body, using: parser)
        counters.note(ignored: validated.ignoredFields, oddities: validated.oddities)
        let call = validated.write
        let caller: Caller
        switch try await self.caller(request, client, call.bundleID) {
        case .caller(let known): caller = known
        case .unavailable(let response): return response
        }
        let sealer = dependencies.sealer
        // All tokens of an install go through one partition, whose clock then says which one was first.
        let subject = TextRules.foldedInstallID(call.installID)
        return try await submit(
            .adServices, .write, call.bundleID, subject, caller, request,
            { call.sealed(by: sealer, organization: $0, proof: caller.proof).encodePayload() },
            dropped: SuccessBody.ok
        ) { _ in SuccessBody.ok }
    }

    /// Hands a validated write to the queue of the organization that its token or else its bundle belongs to, or drops
    /// it.
    /// - Parameter subject: the app user, or the install where a call names no user.
    private func submit(
        _ kind: JobKind, _ lane: Lane, _ bundleID: String, _ subject: String, _ caller: Caller,
        _ request: HTTPRequest, _ payload: (_ organization: String) -> [UInt8],
        dropped: [UInt8] = SuccessBody.dropped, success: (_ organization: String) -> [UInt8]
    ) async throws(WireError) -> HTTPResponse {
        switch caller.app.map({ .organization($0.organization) }) ?? resolve(bundleID) {
        case .unavailable(let response): return response
        case .dropped: return SDKAnswer.success(dropped)
        case .organization(let organization):
            let result = await dependencies.sink.accept(
                NewJob(
                    kind: kind, lane: lane, organization: organization, subject: subject,
                    payload: payload(organization), limit: limit(bundleID, subject, caller),
                    shedding: kind == .identify ? .identify : .attribute,
                    traceparent: RequestIDs.traceparent(of: request)))
            return answer(result) { success(organization) }
        }
    }

    private enum Target {
        case organization(String)
        case dropped
        case unavailable(HTTPResponse)
    }

    private func resolve(_ bundleID: String) -> Target {
        guard let directory = dependencies.directory.current else {
            counters.noDirectory += 1
            counters.lastUnavailable = "no app directory"
            return .unavailable(SDKAnswer.unavailable("the app directory is not known yet"))
        }
        switch directory.resolve(bundleID) {
        case .organization(let organization): return .organization(organization)
        case .none, .several:
            guard dependencies.directory.isFresh else {
                counters.noDirectory += 1
                counters.lastUnavailable = "no app directory"
                return .unavailable(SDKAnswer.unavailable("the app directory is out of date"))
            }
            dependencies.drops.count(bundleID)
            return .dropped
        }
    }

    /// With a token the organization's limit counts; without, that of the device, which is its bundle and subject.
    private func limit(_ bundleID: String, _ subject: String, _ caller: Caller) -> RateLimit? {
        let limits = dependencies.limits
        if let app = caller.app {
            let perMinute = app.attestedPerMinute ?? limits.attestedPerMinute
            guard perMinute > 0 else { return nil }
            return RateLimit(
                subject: SHA256Digest(ofParts: ["ratchet.attested", app.organization]), perMinute: perMinute,
                isShared: true)
        }
        guard limits.unattestedPerMinute > 0 else { return nil }
        return RateLimit(
            subject: SHA256Digest(ofParts: ["ratchet.unattested", bundleID, subject]),
            perMinute: limits.unattestedPerMinute)
    }

    private func answer(_ result: AcceptResult, _ body: () -> [UInt8]) -> HTTPResponse {
        switch result {
        case .accepted: return SDKAnswer.success(body())
        case .limited(let seconds):
            counters.limited += 1
            counters.count(refusal: .rateLimited)
            return SDKAnswer.limited(seconds: seconds)
        case .shed:
            counters.lastUnavailable = "the queue sheds load, or an organization has too much waiting"
            return SDKAnswer.unavailable("the service is busy")
        case .draining:
            counters.lastUnavailable = "what the write is for is being drained"
            return SDKAnswer.unavailable("the service is busy")
        case .unavailable(let why):
            counters.lastUnavailable = why
            return SDKAnswer.unavailable("the service is not available")
        }
    }
}
