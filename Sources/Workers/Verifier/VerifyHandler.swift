package import EventLoop
package import Jobs
package import Trust
internal import Wire
internal import WorkerCore

/// Looks at the signed transactions of a batch, on all cores, and passes every job on to the writer with what it
/// proved or why it proved nothing. A bad signature is no error of the job: it is simply not proof.
package struct VerifyHandler: JobHandler {
    private let verifier: SignedTransactionVerifier
    private let attestations: AttestationVerifier
    private let time: any TimeSource
    private let cores: Int

    /// Version of the payload's form that this program reads.
    private static let payloadVersion = 1

    /// - Parameter cores: how many threads verify at once.
    package init(
        verifier: SignedTransactionVerifier, attestations: AttestationVerifier, time: any TimeSource, cores: Int
    ) {
        self.verifier = verifier
        self.attestations = attestations
        self.time = time
        self.cores = max(1, cores)
    }

    package func handle(_ jobs: [FetchedJob]) async throws(DependencyDown) -> [JobOutcome] {
        let now = time.wallMilliseconds
        let share = (jobs.count + cores - 1) / cores
        // Off the event loop: a signature costs 100 µs, and the loop has heartbeats to send meanwhile.
        let parts = await withTaskGroup(of: (Int, [JobOutcome]).self) { group in
            for start in stride(from: 0, to: jobs.count, by: share) {
                let part = jobs[start..<min(start + share, jobs.count)]
                group.addTask(executorPreference: globalConcurrentExecutor) {
                    (start, part.map { self.outcome($0, now) })
                }
            }
            return await group.reduce(into: [(Int, [JobOutcome])]()) { $0.append($1) }
        }
        return parts.sorted { $0.0 < $1.0 }.flatMap(\.1)
    }

    private func outcome(_ job: FetchedJob, _ now: Int64) -> JobOutcome {
        if job.header.kind == .echo { return .forward(to: .writeLive, payload: job.payload) }
        guard job.header.version == Self.payloadVersion else { return .unsupported }
        if job.header.kind == .attest { return enrolment(job, now) }
        guard job.header.kind == .attribute else { return .unsupported }
        var write: AttributeWrite
        do {
            write = try AttributeWrite(payload: job.payload)
        } catch {
            return .permanent(reason: "malformed_payload", text: "\(error.field ?? "payload"): \(error.message)")
        }
        if case .unverified(let jws) = write.evidence { write.evidence = evidence(jws, write.bundleID, now) }
        let next: Lane = job.lane == .verifyLive ? .writeLive : .write
        return .forward(to: next, payload: write.encodePayload())
    }

    private func evidence(_ jws: String, _ bundleID: String, _ now: Int64) -> AttributeWrite.Evidence {
        let expectation = TransactionExpectation(bundleID: bundleID)
        switch verifier.verify(jws: jws, expectation: expectation, nowMilliseconds: now) {
        case .verified(let facts): return .verified(facts)
        case .refused(let refusal): return .refused(reason: refusal.reason.rawValue)
        }
    }

    /// The device is judged for each app that it may be of: teams that share a bundle id have an app each.
    private func enrolment(_ job: FetchedJob, _ now: Int64) -> JobOutcome {
        var enrolment: Enrolment
        do {
            enrolment = try Enrolment(payload: job.payload)
        } catch {
            return .permanent(reason: "malformed_payload", text: "\(error.field ?? "payload"): \(error.message)")
        }
        guard case .unverified(let attestation, let clientDataHash, let candidates) = enrolment.evidence else {
            return .forward(to: .writeLive, payload: job.payload)
        }
        let verdict = attestations.verify(
            attestation: attestation, keyID: enrolment.keyID, clientDataHash: clientDataHash,
            apps: candidates.map {
                AttestationExpectation(
                    teamID: $0.teamID, bundleID: enrolment.bundleID,
                    environments: $0.allowsDevelopment ? [.production, .development] : [.production])
            }, nowMilliseconds: now)
        switch verdict {
        case .refused(let refusal):
            return .answered(payload: EnrolmentAnswer.refused(reason: refusal.reason.rawValue).encodePayload())
        case .verified(let key):
            let app = candidates[key.app]
            let isOthersToo = candidates.contains {
                $0.teamID.utf8.elementsEqual(app.teamID.utf8)
                    && !$0.organization.utf8.elementsEqual(app.organization.utf8)
            }
            guard !isOthersToo else { return .answered(payload: EnrolmentAnswer.ambiguous.encodePayload()) }
            enrolment.evidence = .verified(
                Enrolment.DeviceKey(
                    organization: app.organization, appID: app.appID, environment: key.environment.rawValue,
                    publicKey: key.publicKey, receipt: key.receipt,
                    bundleVersion: Enrolment.DeviceKey.storable(key.bundleVersion),
                    validationCategory: Enrolment.DeviceKey.storable(key.validationCategory)))
            return .forward(to: .writeLive, payload: enrolment.encodePayload())
        }
    }
}
