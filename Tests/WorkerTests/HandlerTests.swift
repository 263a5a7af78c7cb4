import EventLoop
import Jobs
import Postgres
import Store
import TestSupport
import Testing
import Trust
import Wire
import WorkerCore

@testable import Verifier
@testable import WriterCore

private func job(
    _ payload: [UInt8], kind: JobKind = .attribute, version: Int = 1, lane: Lane = .verify, stamp: Int64 = 1_000_000
) -> FetchedJob {
    FetchedJob(
        lane: lane, partition: 0, entryID: "1-1",
        header: JobHeader(
            kind: kind, version: version, stamp: stamp, attempts: 0, organization: "demo", enqueuedMilliseconds: 1),
        payload: payload, deliveries: 1)
}

@Suite struct VerifyHandlerTests {
    private let pki = TestPKI()

    private func handler() throws -> VerifyHandler {
        let verifier = try SignedTransactionVerifier(roots: [TrustedRoot(der: pki.rootDER)])
        return VerifyHandler(
            verifier: verifier, attestations: try AttestationVerifier(), time: ManualTime(), cores: 2)
    }

    private func write(_ jws: String, bundle: String = "com.example.app") -> AttributeWrite {
        AttributeWrite(
            appUserID: "user_1", bundleID: bundle, store: .appStore, originalTransactionID: "1000",
            evidence: .unverified(jws: jws))
    }

    private func evidence(_ outcome: JobOutcome?) throws -> AttributeWrite.Evidence? {
        guard case .forward(let lane, let payload) = outcome else { return nil }
        #expect(lane == .write)
        return try AttributeWrite(payload: payload).evidence
    }

    @Test func proofGoesOnWithTheJobAndABadSignatureWithItsReason() async throws {
        let genuine = pki.sign(TestPKITransaction().with { $0.transactionID = "77" })
        let forged = TestPKI().sign(TestPKITransaction())
        let jobs = [
            job(write(genuine).encodePayload()), job(write(forged).encodePayload()),
            job(write(genuine, bundle: "com.example.other").encodePayload()),
            job(write("e30.e30.AAAA").encodePayload()),
        ]
        let outcomes = try await handler().handle(jobs)
        #expect(outcomes.count == 4)
        guard case .verified(let facts) = try evidence(outcomes[0]) else {
            Issue.record("a genuine signature was refused")
            return
        }
        #expect(facts.transactionID == "77")
        #expect(facts.productID == TestPKITransaction().productID)
        #expect(try evidence(outcomes[1]) == .refused(reason: "untrusted_root"))
        #expect(try evidence(outcomes[2]) == .refused(reason: "bundle_mismatch"))
        guard case .refused = try evidence(outcomes[3]) else {
            Issue.record("three letters passed as a signature")
            return
        }
    }

    /// However many organizations have connected the bundle, the team that Apple attests decides, and what the device says
    /// beside its key can't spoil it.
    @Test func theAttestedTeamPicksItsAppAmongMany() async throws {
        let authenticator = TestAuthenticator()
        let handler = VerifyHandler(
            verifier: try SignedTransactionVerifier(roots: [TrustedRoot(der: pki.rootDER)]),
            attestations: try AttestationVerifier(
                roots: TrustedRoot.roots(pem: Array(authenticator.rootPEM.utf8))),
            time: ManualTime(wallMicroseconds: 1_820_000_000_000_000), cores: 1)
        let made = authenticator.attest(
            challenge: "AAAA", team: "TEAM000199", bundle: "com.example.app", nowSeconds: 1_820_000_000
        ) {
            // {"apple_bundle_version_01": "1\0"}
            $0.extensions = [0xA1, 0x77] + Array("apple_bundle_version_01".utf8) + [0x62, 0x31, 0x00]
        }
        var candidates = (0..<200).map { index in
            Enrolment.Candidate(
                organization: "org\(index)", appID: "app_\(index)",
                teamID: "TEAM\(String(1_000_000 + index).dropFirst())",
                allowsDevelopment: false)
        }
        func outcome() async throws -> JobOutcome? {
            let enrolment = Enrolment(
                keyID: made.keyID, bundleID: "com.example.app", callDigest: Array(repeating: 1, count: 32),
                tokenHash: Array(repeating: 2, count: 32),
                evidence: .unverified(
                    attestation: made.object, clientDataHash: authenticator.clientDataHash("AAAA"),
                    candidates: candidates))
            return try await handler.handle([job(enrolment.encodePayload(), kind: .attest, lane: .verifyLive)]).first
        }
        guard case .forward(.writeLive, let payload)? = try await outcome(),
            case .verified(let key) = try Enrolment(payload: payload).evidence
        else {
            Issue.record("not verified: \(String(describing: try await outcome()))")
            return
        }
        #expect(key.organization == "org199" && key.appID == "app_199" && key.bundleVersion == nil)
        candidates[3].teamID = "TEAM000199"
        #expect(try await outcome() == .answered(payload: EnrolmentAnswer.ambiguous.encodePayload()))
    }

    @Test func theOrderOfOutcomesIsTheOrderOfJobs() async throws {
        let payloads = (0..<37).map { index in
            AttributeWrite(
                appUserID: "user_\(index)", bundleID: "com.example.app", store: .appStore, originalTransactionID: "1",
                evidence: .unverified(jws: "e30.e30.AAAA"))
        }
        let outcomes = try await handler().handle(payloads.map { job($0.encodePayload()) })
        let users = try outcomes.map { outcome -> String in
            guard case .forward(_, let payload) = outcome else { return "" }
            return try AttributeWrite(payload: payload).appUserID
        }
        #expect(users == payloads.map(\.appUserID))
    }

    @Test func whatItDoesNotKnowIsPutAsideAndWhatItCannotReadIsBuried() async throws {
        let outcomes = try await handler().handle([
            job([], kind: JobKind(rawValue: "from_the_future")), job(write("e30.e30.AAAA").encodePayload(), version: 2),
            job(Array("{".utf8)),
        ])
        #expect(outcomes[0] == .unsupported)
        #expect(outcomes[1] == .unsupported)
        guard case .permanent(let reason, _) = outcomes[2] else {
            Issue.record("unreadable bytes were not buried")
            return
        }
        #expect(reason == "malformed_payload")
    }

    @Test func aJobSomebodyWaitsForStaysOnTheLiveLane() async throws {
        let outcomes = try await handler().handle([job(write("e30.e30.AAAA").encodePayload(), lane: .verifyLive)])
        guard case .forward(let lane, _) = outcomes[0] else {
            Issue.record("not forwarded")
            return
        }
        #expect(lane == .writeLive)
    }
}

@Suite struct WriteHandlerTests {
    private struct Bench {
        let loop: EventLoop
        let postgres: PostgresClient
        let handler: WriteHandler

        static func make() async throws -> Bench {
            let database = try TestPostgres.shared.get()
            let configuration = PostgresConfiguration(conninfo: database.conninfo, schema: database.schema())
            let loop = EventLoop(name: "write-test")
            return try await loop.run {
                let postgres = PostgresClient(configuration, on: loop)
                try await postgres.withConnection { connection throws(PostgresError) in
                    do throws(StoreError) {
                        _ = try await Migrator.migrate(connection)
                    } catch {
                        throw error.cause ?? PostgresError(.usage, error.message)
                    }
                }
                return Bench(
                    loop: loop, postgres: postgres,
                    handler: WriteHandler(loop: loop, postgres: postgres) { _ in })
            }
        }

        func handle(_ jobs: [FetchedJob]) async throws -> [JobOutcome] {
            try await loop.run { try await handler.handle(jobs) }
        }

        func count(_ sql: String) async throws -> Int64 {
            try await loop.run {
                try await postgres.withConnection { connection throws(PostgresError) in
                    try await connection.query("SELECT (\(sql))::bigint AS n").first?.int64("n") ?? -1
                }
            }
        }
    }

    private func identify(_ user: String, _ stamp: Int64) -> FetchedJob {
        job(
            IdentifyWrite(appUserID: user, bundleID: "com.example.app").encodePayload(), kind: .identify, lane: .write,
            stamp: stamp)
    }

    @Test func aBatchIsAppliedAndItsRepetitionChangesNothing() async throws {
        let bench = try await Bench.make()
        let jobs = (1...50).map { identify("user_\($0)", Int64($0)) }
        #expect(try await bench.handle(jobs) == Array(repeating: .done, count: 50))
        #expect(try await bench.handle(jobs) == Array(repeating: .done, count: 50))
        #expect(try await bench.count("SELECT count(*) FROM customers") == 50)
    }

    @Test func onlyTheCulpritOfABadBatchIsBuried() async throws {
        let bench = try await Bench.make()
        // A rule that only the database knows stands for any fault of data that nobody foresaw.
        _ = try await bench.loop.run {
            try await bench.postgres.withConnection { connection throws(PostgresError) in
                try await connection.execute(
                    "ALTER TABLE customers ADD CONSTRAINT unforeseen CHECK (app_user_id <> 'user_13')")
            }
        }
        let outcomes = try await bench.handle((1...40).map { identify("user_\($0)", Int64($0)) })
        for (index, outcome) in outcomes.enumerated() {
            if index == 12 {
                guard case .permanent(let reason, _) = outcome else {
                    Issue.record("the culprit was not buried: \(outcome)")
                    continue
                }
                #expect(reason == "data_refused")
            } else {
                #expect(outcome == .done)
            }
        }
        #expect(try await bench.count("SELECT count(*) FROM customers") == 39)
    }

    @Test func aMissingTableIsADependencyThatIsAwayNotADeadLetter() async throws {
        let bench = try await Bench.make()
        _ = try await bench.loop.run {
            try await bench.postgres.withConnection { connection throws(PostgresError) in
                try await connection.execute("ALTER TABLE customers RENAME TO customers_gone")
            }
        }
        await #expect(throws: DependencyDown.self) { try await bench.handle([identify("user_1", 1)]) }
    }

    @Test func unreadableUnknownAndUnverifiedJobsGoTheirOwnWays() async throws {
        let bench = try await Bench.make()
        let unverified = AttributeWrite(
            appUserID: "user_2", bundleID: "com.example.app", store: .appStore, originalTransactionID: "1000",
            evidence: .unverified(jws: "e30.e30.AAAA")
        ).encodePayload()
        let outcomes = try await bench.handle([
            job(Array("[]".utf8), kind: .identify, lane: .write), identify("user_1", 1),
            job([], kind: JobKind(rawValue: "mint"), lane: .write), job(unverified, lane: .write),
        ])
        guard case .permanent(let reason, _) = outcomes[0] else {
            Issue.record("an unreadable payload was not buried")
            return
        }
        #expect(reason == "malformed_payload")
        #expect(outcomes[1] == .done)
        #expect(outcomes[2] == .unsupported)
        #expect(outcomes[3] == .forward(to: .verify, payload: unverified))
        #expect(try await bench.count("SELECT count(*) FROM customers") == 1)
    }

    private func adServices(_ install: String, _ stamp: Int64, bundle: String = "com.example.app") -> FetchedJob {
        job(
            AdServicesWrite(
                bundleID: bundle, installID: install, sealedToken: Array(repeating: UInt8(stamp % 251), count: 100)
            ).encodePayload(), kind: .adServices, lane: .write, stamp: stamp)
    }

    @Test func tokensOfABatchAreStoredWithTheRestOfItAndOnlyTheFirstOfAnInstallCounts() async throws {
        let bench = try await Bench.make()
        let jobs = [
            adServices("b", 7), identify("user_1", 3), adServices("a", 5), adServices("b", 6),
            job(Array("{}".utf8), kind: .adServices, lane: .write), adServices("b", 9),
        ]
        for _ in 0..<2 {
            let outcomes = try await bench.handle(jobs)
            guard case .permanent(let reason, _) = outcomes[4] else {
                Issue.record("an unreadable payload was not buried")
                return
            }
            #expect(reason == "malformed_payload")
            #expect(outcomes.count { $0 == .done } == 5)
        }
        #expect(try await bench.count("SELECT count(*) FROM customers") == 1)
        #expect(try await bench.count("SELECT count(*) FROM adservices_tokens") == 2)
        #expect(try await bench.count("SELECT stamp FROM adservices_tokens WHERE subject = 'b'") == 6)
        #expect(
            try await bench.count(
                "SELECT count(*) FROM adservices_tokens WHERE sealed_token = decode(repeat('06', 100), 'hex')") == 1)
        #expect(try await bench.count("SELECT later_tokens FROM adservices_tokens WHERE subject = 'b'") == 2)
        // Apple's advice, before the first ask.
        #expect(try await bench.count("SELECT due_at FROM adservices_tokens WHERE subject = 'a'") == 5_000_005)
    }

    @Test func onlyTheTokenThatTheDatabaseRefusesIsBuried() async throws {
        let bench = try await Bench.make()
        _ = try await bench.loop.run {
            try await bench.postgres.withConnection { connection throws(PostgresError) in
                try await connection.execute(
                    "ALTER TABLE adservices_tokens ADD CONSTRAINT unforeseen CHECK (subject <> 'install_3')")
            }
        }
        let outcomes = try await bench.handle(
            (1...6).map { adServices("install_\($0)", Int64($0)) } + [identify("u", 9)])
        for (index, outcome) in outcomes.enumerated() {
            #expect((outcome == .done) == (index != 2), "\(index): \(outcome)")
        }
        #expect(try await bench.count("SELECT count(*) FROM adservices_tokens") == 5)
        #expect(try await bench.count("SELECT count(*) FROM customers") == 1)
    }
}
