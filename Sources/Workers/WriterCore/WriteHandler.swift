package import EventLoop
internal import JSON
package import Jobs
package import Postgres
package import RedisQueue
package import Store
internal import Wire
internal import WorkerCore

/// Applies batches of SDK writes to Postgres. A batch that fails for its data is bisected, so that only the culprit
/// is buried; one that fails by chance is tried again at once before it costs an attempt.
///
/// `@unchecked Sendable`: the parser is touched on the loop's thread alone, where `handle` runs.
package final class WriteHandler: JobHandler, @unchecked Sendable {
    private let loop: EventLoop
    let postgres: PostgresClient
    let devices: KnownDevices?
    private let parser = JSONParser()
    private let adServicesTimeScale: Int
    private let report: @Sendable (ApplyReport) -> Void

    /// Version of the payloads that this program reads.
    private static let payloadVersion = 1
    /// Deadlocks and lost races are tried again at once so often.
    private static let immediateTries = 3

    /// - Parameters:
    ///   - devices: what Redis is told of tokens; nil tells it nothing, and each question comes here.
    ///   - adServicesTimeScale: see `AdServicesTokens.accept`.
    ///   - report: told what each applied batch did, for metrics.
    package init(
        loop: EventLoop, postgres: PostgresClient, devices: KnownDevices? = nil, adServicesTimeScale: Int = 1,
        report: @escaping @Sendable (ApplyReport) -> Void
    ) {
        self.loop = loop
        self.postgres = postgres
        self.devices = devices
        self.adServicesTimeScale = adServicesTimeScale
        self.report = report
    }

    package func handle(_ jobs: [FetchedJob]) async throws(DependencyDown) -> [JobOutcome] {
        loop.preconditionInLoop()
        var outcomes = [JobOutcome](repeating: .done, count: jobs.count)
        var writes: [StampedWrite] = []
        var positions: [Int] = []
        var questions: [(index: Int, question: DeviceQuestion)] = []
        writes.reserveCapacity(jobs.count)
        for (index, job) in jobs.enumerated() {
            switch decode(job) {
            case .write(let write):
                writes.append(write)
                positions.append(index)
            case .enrolment(let enrolment, let key): outcomes[index] = try await enrol(enrolment, key, job)
            case .question(let question): questions.append((index, question))
            case .outcome(let outcome): outcomes[index] = outcome
            }
        }
        let answers = try await answer(questions.map(\.question))
        for ((index, _), outcome) in zip(questions, answers) { outcomes[index] = outcome }
        for (position, outcome) in zip(positions, try await apply(writes)) { outcomes[position] = outcome }
        return outcomes
    }

    private enum Decoded {
        case write(StampedWrite)
        case enrolment(Enrolment, Enrolment.DeviceKey)
        case question(DeviceQuestion)
        case outcome(JobOutcome)
    }

    private func decode(_ job: FetchedJob) -> Decoded {
        if job.header.kind == .echo { return .outcome(.answered(payload: job.payload)) }
        guard job.header.version == Self.payloadVersion else { return .outcome(.unsupported) }
        let content: StampedWrite.Content
        do {
            switch job.header.kind {
            case .identify: content = .identify(try IdentifyWrite(payload: job.payload, using: parser))
            case .attribute:
                let write = try AttributeWrite(payload: job.payload, using: parser)
                // Sent again by hand past the verifier: it goes back there, or its proof would be lost.
                if case .unverified = write.evidence {
                    return .outcome(.forward(to: .verify, payload: job.payload))
                }
                content = .attribute(write)
            case .adServices: content = .adServices(try AdServicesWrite(payload: job.payload, using: parser))
            case .attest:
                let enrolment = try Enrolment(payload: job.payload, using: parser)
                guard case .verified(let key) = enrolment.evidence else {
                    return .outcome(.forward(to: .verifyLive, payload: job.payload))
                }
                return .enrolment(enrolment, key)
            case .device: return .question(try DeviceQuestion(payload: job.payload))
            default: return .outcome(.unsupported)
            }
        } catch {
            return .outcome(
                .permanent(reason: "malformed_payload", text: "\(error.field ?? "payload"): \(error.message)"))
        }
        return .write(
            StampedWrite(organization: job.header.organization, stamp: job.header.stamp, content: content))
    }

    private func apply(_ writes: [StampedWrite]) async throws(DependencyDown) -> [JobOutcome] {
        guard !writes.isEmpty else { return [] }
        // Before the connection is asked for: the batch before this one may still be on it.
        let prepared = SDKWrites.prepare(writes)
        var tries = 0
        while true {
            do {
                let scale = adServicesTimeScale
                let applied = try await postgres.withConnection { connection throws(PostgresError) in
                    try await SDKWrites.apply(prepared, adServicesTimeScale: scale, connection)
                }
                report(applied)
                return Array(repeating: .done, count: writes.count)
            } catch {
                switch error.outcome {
                case .dependency: throw DependencyDown("postgres", error.message)
                case .transient:
                    tries += 1
                    if tries >= Self.immediateTries {
                        return Array(repeating: .transient(text: error.message), count: writes.count)
                    }
                case .permanent:
                    if writes.count == 1 { return [.permanent(reason: "data_refused", text: error.message)] }
                    let half = writes.count / 2
                    let first = try await apply(Array(writes[..<half]))
                    return first + (try await apply(Array(writes[half...])))
                }
            }
        }
    }
}
