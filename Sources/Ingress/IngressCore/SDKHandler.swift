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

    package init(_ dependencies: Dependencies) {
        self.dependencies = dependencies
        requestIDs = RequestIDs()
    }

    /// Answers one request, at once or later through its reply; see `HTTPServer.Handler`. Runs on the loop.
    ///
    /// Plain calls, and a closure where something is waited for: a task for each write would cost more than the write.
    package func handle(_ request: HTTPRequest, _ reply: HTTPReply) -> HTTPResponse? {
        dependencies.loop.preconditionInLoop()
        let call = SDKCall(
            request: request, route: SDKRoute(request.head), client: dependencies.clients.of(request),
            requestID: requestIDs.id(for: request),
            startedNanoseconds: dependencies.loop.time.monotonicNanoseconds, reply: reply)
        return outcome { () throws(WireError) in try route(call) }.map { finished($0, call) }
    }

    /// Answers a call that had to wait.
    func answer(_ call: SDKCall, _ response: HTTPResponse) { call.reply.send(finished(response, call)) }

    /// Goes on with a call that had to wait, which may have to wait again.
    func resume(_ call: SDKCall, _ body: () throws(WireError) -> HTTPResponse?) {
        if let response = outcome(body) { answer(call, response) }
    }

    /// The answer that a part of a call led to; nil when it comes later.
    private func outcome(_ body: () throws(WireError) -> HTTPResponse?) -> HTTPResponse? {
        do throws(WireError) {
            return try body()
        } catch {
            counters.count(refusal: error.code)
            return SDKAnswer.error(error)
        }
    }

    private func finished(_ response: HTTPResponse, _ call: SDKCall) -> HTTPResponse {
        var response = response
        response.headers.append(("X-Request-Id", call.requestID))
        if response.status >= 500 {
            counters.count(refusal: .serverError)
            dependencies.log.limited(
                .warn, "a call could not be served",
                ["status": response.status, "requestId": call.requestID, "reason": counters.lastUnavailable ?? ""])
        }
        counters.count(
            call.route, status: response.status,
            nanoseconds: dependencies.loop.time.monotonicNanoseconds - call.startedNanoseconds)
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

    private func route(_ call: SDKCall) throws(WireError) -> HTTPResponse? {
        guard call.route != .other else {
            counters.count(refusal: .notFound)
            return SDKAnswer.error(WireError(.notFound, "there is no such path"))
        }
        switch call.request.method {
        case .options: return SDKAnswer.options()
        case .post: break
        default:
            counters.count(refusal: .methodNotAllowed)
            return SDKAnswer.error(
                WireError(.methodNotAllowed, "only POST and OPTIONS are answered here"),
                headers: [("Allow", "POST, OPTIONS")])
        }
        if let seconds = dependencies.addresses.check(call.client, nowNanoseconds: call.startedNanoseconds) {
            counters.addressLimited += 1
            counters.count(refusal: .rateLimited)
            return SDKAnswer.limited(seconds: seconds)
        }
        switch call.route {
        case .identify: return try identify(call)
        case .attribute: return try attribute(call)
        case .adServices: return try adServices(call)
        case .challenge: return challenge(call.client)
        case .attest, .other: return try attest(call)
        }
    }

    private func identify(_ call: SDKCall) throws(WireError) -> HTTPResponse? {
        let validated = try Validated<IdentifyWrite>(body: call.request.body, using: parser)
        counters.note(ignored: validated.ignoredFields, oddities: validated.oddities)
        return try withCaller(call, validated.write, bundleID: validated.write.bundleID) {
            handler, write, caller, call in
            let job = NewWrite(kind: .identify, lane: .write, bundleID: write.bundleID, subject: write.appUserID)
            return handler.submit(job, caller, call) { organization in
                let id = UUIDv8.customer(organization: organization, appUserID: write.appUserID)
                return (write.encodePayload(proof: caller.proof), SuccessBody.identify(id: id.description))
            }
        }
    }

    private func attribute(_ call: SDKCall) throws(WireError) -> HTTPResponse? {
        let validated = try Validated<AttributeWrite>(body: call.request.body, using: parser)
        counters.note(ignored: validated.ignoredFields, oddities: validated.oddities)
        return try withCaller(call, validated.write, bundleID: validated.write.bundleID) {
            handler, write, caller, call in
            // Only a signature needs the verifier; everything else goes straight to the writer.
            var lane = Lane.write
            if case .unverified = write.evidence { lane = .verify }
            let job = NewWrite(kind: .attribute, lane: lane, bundleID: write.bundleID, subject: write.appUserID)
            return handler.submit(job, caller, call) { _ in
                (write.encodePayload(proof: caller.proof), SuccessBody.ok)
            }
        }
    }

    /// The answer never tells what became of the token: whether one came before is not the caller's to know.
    private func adServices(_ call: SDKCall) throws(WireError) -> HTTPResponse? {
        let validated = try Validated<AdServicesCall>(body: call.request.body, using: parser)
        counters.note(ignored: validated.ignoredFields, oddities: validated.oddities)
        return try withCaller(call, validated.write, bundleID: validated.write.bundleID) {
            handler, token, caller, call in
            // All tokens of an install go through one partition, whose clock then says which one was first.
            let job = NewWrite(
                kind: .adServices, lane: .write, bundleID: token.bundleID,
                subject: TextRules.foldedInstallID(token.installID), dropped: SuccessBody.ok)
            return handler.submit(job, caller, call) { organization in
                let sealed = token.sealed(
                    by: handler.dependencies.sealer, organization: organization, proof: caller.proof)
                return (sealed.encodePayload(), SuccessBody.ok)
            }
        }
    }

    /// What the queue has to know of a validated write.
    private struct NewWrite {
        var kind: JobKind
        var lane: Lane
        var bundleID: String
        /// The app user, or the install where a call names no user.
        var subject: String
        /// The answer when it is nobody's.
        var dropped = SuccessBody.dropped
    }

    /// Hands a validated write to the queue of the organization that its token or else its bundle belongs to, or drops
    /// it.
    /// - Parameter contents: of that organization's job: its payload, and the answer once the queue has it.
    private func submit(
        _ write: NewWrite, _ caller: Caller, _ call: SDKCall,
        contents: (_ organization: String) -> (payload: [UInt8], answer: [UInt8])
    ) -> HTTPResponse? {
        switch caller.app.map({ .organization($0.organization) }) ?? resolve(write.bundleID) {
        case .unavailable(let response): return response
        case .dropped: return SDKAnswer.success(write.dropped)
        case .organization(let organization):
            let (payload, body) = contents(organization)
            let job = NewJob(
                kind: write.kind, lane: write.lane, organization: organization, subject: write.subject,
                payload: payload, limit: limit(write.bundleID, write.subject, caller),
                shedding: write.kind == .identify ? .identify : .attribute,
                traceparent: RequestIDs.traceparent(of: call.request))
            dependencies.sink.accept(job) { [self] result in answer(call, response(to: result, body)) }
            return nil
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

    private func response(to result: AcceptResult, _ accepted: [UInt8]) -> HTTPResponse {
        switch result {
        case .accepted: return SDKAnswer.success(accepted)
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
