internal import Jobs
internal import Postgres
internal import Redis
internal import RedisQueue
internal import Store
internal import Wire
internal import WorkerCore

/// What is no join: calls about devices, answered once their effect is durable.
extension WriteHandler {
    func enrol(
        _ enrolment: Enrolment, _ key: Enrolment.DeviceKey, _ job: FetchedJob
    ) async throws(DependencyDown) -> JobOutcome {
        let header = job.header
        do {
            let outcome = try await postgres.withConnection { connection throws(PostgresError) in
                try await Devices.enrol(enrolment, key, stamp: header.stamp, connection)
            }
            let answer: EnrolmentAnswer
            switch outcome {
            case .enrolled(let id, let replaced):
                // The token of an answer that was lost on the way is nobody's now.
                if let replaced { try? await devices?.revoke(replaced, nobody: DeviceFacts.encode(nil)) }
                answer = .enrolled(DeviceFacts(organization: key.organization, appID: key.appID, deviceID: id))
            case .alreadyEnrolled: answer = .refused(reason: "already_enrolled")
            case .superseded: answer = .superseded
            }
            return .answered(payload: answer.encodePayload())
        } catch {
            return try Self.outcome(of: error)
        }
    }

    /// All questions of a batch in one look. Redis learns the answers too, so that other ingress processes need not ask;
    /// what stands there wins, since it may be a revocation that came after the look into Postgres.
    func answer(_ questions: [DeviceQuestion]) async throws(DependencyDown) -> [JobOutcome] {
        guard !questions.isEmpty else { return [] }
        let hashes = questions.map(\.tokenHash)
        let known: [[UInt8]: DeviceFacts]
        do {
            known = try await postgres.withConnection { connection throws(PostgresError) in
                try await Devices.facts(tokenHashes: hashes, connection)
            }
        } catch {
            let outcome = try Self.outcome(of: error)
            return questions.map { _ in outcome }
        }
        var outcomes: [JobOutcome] = []
        for hash in hashes {
            let encoded = DeviceFacts.encode(known[hash])
            guard known[hash] != nil, let devices else {
                outcomes.append(.answered(payload: encoded))
                continue
            }
            outcomes.append(.answered(payload: (try? await devices.remember(hash, encoded)) ?? encoded))
        }
        return outcomes
    }

    private static func outcome(of error: PostgresError) throws(DependencyDown) -> JobOutcome {
        switch error.outcome {
        case .dependency: throw DependencyDown("postgres", error.message)
        case .transient: return .transient(text: error.message)
        case .permanent: return .permanent(reason: "data_refused", text: error.message)
        }
    }
}
