internal import Bytes
internal import EventLoop
internal import HTTP
internal import Jobs
internal import RedisQueue
internal import Wire

extension SDKHandler {
    /// A phone waits; Apple's own answer took longer.
    private static let enrolmentMilliseconds: Int64 = 5000

    /// `POST /api/sdk/v1/attest/challenge`. Its body is not looked at.
    func challenge(_ client: PeerAddress) -> HTTPResponse {
        let now = dependencies.loop.time.monotonicNanoseconds
        if let seconds = dependencies.limits.challenges.check(client, nowNanoseconds: now) {
            counters.addressLimited += 1
            counters.count(refusal: .rateLimited)
            return SDKAnswer.limited(seconds: seconds)
        }
        note(.challenged)
        return SDKAnswer.success(
            SuccessBody.challenge(
                dependencies.challenges.make(nowMilliseconds: dependencies.loop.time.wallMilliseconds)))
    }

    /// `POST /api/sdk/v1/attest`: the token is made here, and only its hash goes on. It is answered once the device is
    /// durable.
    func attest(_ call: SDKCall) throws(WireError) -> HTTPResponse? {
        let attestation = try Validated<AttestCall>(body: call.request.body, using: parser).write
        dependencies.loop.spawn { [self] in
            let result: Result<HTTPResponse, WireError>
            do throws(WireError) {
                result = .success(try await enrol(attestation, call.request, call.client))
            } catch {
                result = .failure(error)
            }
            resume(call) { () throws(WireError) in try result.get() }
        }
        return nil
    }

    private func enrol(
        _ call: AttestCall, _ request: HTTPRequest, _ client: PeerAddress
    ) async throws(WireError) -> HTTPResponse {
        note(.attempted, bundleID: call.bundleID)
        let time = dependencies.loop.time
        if let seconds = dependencies.limits.enrolments.check(client, nowNanoseconds: time.monotonicNanoseconds) {
            counters.addressLimited += 1
            counters.count(refusal: .rateLimited)
            return SDKAnswer.limited(seconds: seconds)
        }
        guard
            let challenge = dependencies.challenges.read(call.challenge, nowMilliseconds: time.wallMilliseconds)
        else { throw refused(.challengeFailed, "challenge", call.bundleID) }
        do {
            // Before anything else is done with it: a challenge is used up by the first call, failed or not.
            let mayPass = try await dependencies.devices.useChallenge(
                call.challenge, callDigest: call.digest.bytes, milliseconds: challenge.millisecondsLeft)
            guard mayPass else { throw refused(.challengeFailed, "challenge_used", call.bundleID) }
        } catch let error as WireError {
            throw error
        } catch {
            return away("redis: \(error)", call.bundleID)
        }
        let candidates: [Enrolment.Candidate]
        switch try self.candidates(for: call.bundleID) {
        case .unavailable(let response): return response
        case .found(let found): candidates = found
        }
        let token = DeviceTokens.mint()
        let enrolment = Enrolment(
            keyID: call.keyID, bundleID: call.bundleID, callDigest: call.digest.bytes,
            tokenHash: DeviceTokens.hash(of: token),
            evidence: .unverified(
                attestation: call.attestation, clientDataHash: challenge.clientDataHash,
                candidates: candidates))
        let job = NewJob(
            kind: .attest, lane: .verifyLive, organization: Self.organization(of: candidates),
            subject: Hex.encode(call.keyID),
            payload: enrolment.encodePayload(), traceparent: RequestIDs.traceparent(of: request))
        switch await dependencies.asker.ask(job, timeoutMilliseconds: Self.enrolmentMilliseconds) {
        case .limited(let seconds): return SDKAnswer.limited(seconds: seconds)
        case .unavailable(let why): return away(why, call.bundleID)
        case .answered(let payload):
            switch EnrolmentAnswer(payload: payload, using: parser) {
            case nil: return away("an answer of another form", call.bundleID)
            case .superseded: return away("an equal call came later", call.bundleID)
            case .refused(let reason): throw refused(.attestationFailed, reason, call.bundleID)
            case .ambiguous: throw ambiguous(call.bundleID)
            case .enrolled(let facts):
                // Not remembered: an equal repeat may have replaced the token meanwhile. Its first use asks whose it is.
                note(.enrolled, bundleID: call.bundleID, organization: facts.organization)
                return SDKAnswer.success(SuccessBody.deviceToken(token))
            }
        }
    }

    private enum Candidates {
        case found([Enrolment.Candidate])
        case unavailable(HTTPResponse)
    }

    /// The apps that a device with this bundle id may be of: one for each team and organization that connected it. The
    /// team that Apple attests tells which.
    private func candidates(for bundleID: String) throws(WireError) -> Candidates {
        guard let directory = dependencies.directory.current, dependencies.directory.isFresh else {
            counters.noDirectory += 1
            return .unavailable(away("no app directory", bundleID))
        }
        let apps = directory.attestable(bundleID)
        guard !apps.isEmpty else {
            note(.notConnected)
            throw WireError(
                .appNotConnected, "no app with this bundle id and a team id is connected", field: "bundleId")
        }
        // A team of several organizations says nothing, whatever Apple attests.
        let isHopeless = apps.allSatisfy { app in
            apps.contains { $0.team == app.team && $0.organization != app.organization }
        }
        guard !isHopeless, apps.count <= SDKLimits.candidates else { throw ambiguous(bundleID) }
        return .found(
            apps.map {
                Enrolment.Candidate(
                    organization: $0.organization, appID: $0.id, teamID: $0.team,
                    allowsDevelopment: $0.allowsDevelopment)
            })
    }

    /// For the job's header: the one organization it can be of, or that nobody knows yet.
    private static func organization(of candidates: [Enrolment.Candidate]) -> String {
        guard let first = candidates.first, candidates.allSatisfy({ $0.organization == first.organization }) else {
            return DeviceQuestion.organization
        }
        return first.organization
    }

    private func ambiguous(_ bundleID: String) -> WireError {
        note(.ambiguous, bundleID: bundleID)
        return WireError(
            .ambiguousApp, "several organizations have connected this bundle id under its team", field: "bundleId")
    }

    private func away(_ why: String, _ bundleID: String) -> HTTPResponse {
        note(.unavailable, bundleID: bundleID)
        counters.lastUnavailable = why
        return SDKAnswer.unavailable("devices can't enrol now")
    }

    /// - Parameter reason: counted, and told by the code alone but for what the device itself sent wrong: an attacker
    ///   learns nothing of what is stored.
    private func refused(_ code: WireError.Code, _ reason: String, _ bundleID: String) -> WireError {
        note(.refused, reason, bundleID: bundleID)
        return WireError(
            code,
            code == .challengeFailed ? "the challenge is not valid" : "the attestation is not valid: \(reason)")
    }

    /// Counts a step for metrics, and for the store by app, as far as it is known whose app it is.
    private func note(
        _ step: EnrolmentStep, _ reason: String? = nil, bundleID: String? = nil, organization: String? = nil
    ) {
        counters.count(enrolment: step, reason)
        let organization = organization ?? bundleID.flatMap(onlyOrganization)
        dependencies.enrolments.count(
            EnrolmentCount(
                day: EnrolmentCount.day(ofMilliseconds: dependencies.loop.time.wallMilliseconds),
                organization: organization ?? "", bundleID: organization == nil ? "" : bundleID ?? "", step: step,
                reason: reason ?? ""
            ).name)
    }

    private func onlyOrganization(_ bundleID: String) -> String? {
        guard let apps = dependencies.directory.current?.attestable(bundleID), let first = apps.first,
            apps.allSatisfy({ $0.organization == first.organization })
        else { return nil }
        return first.organization
    }
}
