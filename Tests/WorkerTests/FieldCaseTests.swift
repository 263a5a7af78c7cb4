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

/// Reports from the field that attribution itself can show, from the queue's jobs to what an operator reads: every
/// write passes the verifier's and the writer's own handlers.
@Suite struct FieldCaseTests {
    /// Verifier, writer and a schema of one test.
    private struct Bench {
        /// September 2027: the leaf of the test root has expired by then.
        static let now: Int64 = 1_820_000_000_000_000

        let pki = TestPKI()
        let loop = EventLoop(name: "cases")
        let postgres: PostgresClient
        let stamps = Stamps()

        final class Stamps: @unchecked Sendable {
            // Touched by one test at a time.
            var last: Int64 = 1_795_996_800_000_000
        }

        static func make() async throws -> Bench {
            let database = try TestPostgres.shared.get()
            let configuration = PostgresConfiguration(conninfo: database.conninfo, schema: database.schema())
            let bench = Bench(configuration)
            try await bench.onPostgres { connection throws(PostgresError) in
                do throws(StoreError) {
                    _ = try await Migrator.migrate(connection)
                } catch {
                    throw error.cause ?? PostgresError(.usage, error.message)
                }
            }
            return bench
        }

        private init(_ configuration: PostgresConfiguration) {
            postgres = PostgresClient(configuration, on: loop)
        }

        func onPostgres<Value: Sendable>(
            _ body: @escaping @Sendable (PostgresConnection) async throws(PostgresError) -> Value
        ) async throws -> Value {
            try await loop.run { [postgres] in try await postgres.withConnection(body) }
        }

        private func handle(_ kind: JobKind, _ payload: [UInt8]) async throws {
            stamps.last += 1_000_000
            var job = FetchedJob(
                lane: .write, partition: 0, entryID: "1-1",
                header: JobHeader(
                    kind: kind, version: 1, stamp: stamps.last, attempts: 0, organization: "demo",
                    enqueuedMilliseconds: 1),
                payload: payload, deliveries: 1)
            if kind == .attribute {
                let verifier = try SignedTransactionVerifier(roots: [TrustedRoot(der: pki.rootDER)])
                let handler = VerifyHandler(
                    verifier: verifier, attestations: try AttestationVerifier(),
                    time: ManualTime(wallMicroseconds: Bench.now), cores: 1)
                guard case .forward(_, let proved)? = try await handler.handle([job]).first else {
                    Issue.record("the verifier kept a job")
                    return
                }
                job.payload = proved
            }
            let writing = job
            let outcomes = try await loop.run { [loop, postgres] in
                try await WriteHandler(loop: loop, postgres: postgres) { _ in }.handle([writing])
            }
            #expect(outcomes == [.done])
        }

        func identify(_ user: String) async throws {
            try await handle(.identify, IdentifyWrite(appUserID: user, bundleID: "com.example.app").encodePayload())
        }

        func attribute(_ user: String, _ id: String, jws: String? = nil) async throws {
            let write = AttributeWrite(
                appUserID: user, bundleID: "com.example.app", store: .appStore, originalTransactionID: id,
                evidence: jws.map { .unverified(jws: $0) } ?? .none)
            try await handle(.attribute, write.encodePayload())
        }

        func sign(_ id: String, _ change: (inout TestPKITransaction) -> Void = { _ in }) -> String {
            pki.sign(
                TestPKITransaction().with {
                    $0.transactionID = id
                    $0.originalTransactionID = id
                    change(&$0)
                })
        }

        func purchase(_ id: String) async throws -> PurchaseRecord {
            let found = try await onPostgres { connection throws(PostgresError) in
                try await Purchases.show(
                    organization: "demo", originalTransactionID: id, nowMicroseconds: 1_795_999_999_000_000, connection)
            }
            return try #require(found)
        }

        func history(_ id: String) async throws -> [PurchaseMove] {
            let record = try await purchase(id)
            return try await onPostgres { connection throws(PostgresError) in
                try await Purchases.history(of: record, connection)
            }
        }

        func customer(_ user: String) async throws -> CustomerRecord? {
            try await onPostgres { connection throws(PostgresError) in
                try await Customers.show(
                    organization: "demo", appUserID: user, nowMicroseconds: 1_795_999_999_000_000, connection)
            }
        }

        func count(_ table: String) async throws -> Int64 {
            try await onPostgres { connection throws(PostgresError) in
                try await connection.query("SELECT count(*) AS n FROM \(table)").first?.int64("n") ?? -1
            }
        }
    }

    /// sdk.md 1: an anonymous re-post without proof takes a proven purchase; it moves, says so, and can be undone.
    @Test func aPurchaseTakenByAnAnonymousIdIsOnRecordContestedAndUndone() async throws {
        let bench = try await Bench.make()
        try await bench.attribute("user_42", "T1", jws: bench.sign("T1"))
        #expect(try await bench.customer("user_42")?.verified == true)
        try await bench.attribute("$anon_x", "T1")
        #expect(try await bench.purchase("T1").owner == "$anon_x")
        #expect(try await bench.purchase("T1").contested)
        #expect(try await bench.purchase("T1").jwsVerified)
        #expect(try await bench.customer("$anon_x")?.verified == false)
        let history = try await bench.history("T1")
        #expect(history.map(\.to) == ["user_42", "$anon_x"])
        #expect(history.map(\.jws) == [true, false])
        #expect(history.map(\.contested) == [false, true])
        _ = try await bench.onPostgres { connection throws(PostgresError) in
            try await Purchases.move(
                organization: "demo", originalTransactionID: "T1", store: .appStore, to: "user_42", actor: "test",
                nowMicroseconds: 1_795_999_999_000_000, connection)
        }
        #expect(try await bench.purchase("T1").owner == "user_42")
        #expect(try await bench.customer("user_42")?.verified == true)
    }

    /// sdk.md 2, 3: each taking of a purchase shows the previous owner.
    @Test func everyMoveNamesWhomThePurchaseWasTakenFrom() async throws {
        let bench = try await Bench.make()
        for user in ["user_a", "$anon_2", "user_b"] { try await bench.attribute(user, "T1", jws: bench.sign("T1")) }
        let history = try await bench.history("T1")
        #expect(history.map(\.from) == [nil, "user_a", "$anon_2"])
        #expect(history.map(\.to) == ["user_a", "$anon_2", "user_b"])
        #expect(try await bench.purchase("T1").contested == false)
    }

    /// sdk.md 5: restoring on each login makes the last login win, again and again.
    @Test func fiveOwnersInAMinuteAreFlaggedAsFlapping() async throws {
        let bench = try await Bench.make()
        for index in 1...5 { try await bench.attribute("user_\(index)", "T1") }
        #expect(try await bench.purchase("T1").owner == "user_5")
        #expect(try await bench.purchase("T1").flapping)
        try await bench.attribute("user_1", "T2")
        #expect(try await bench.purchase("T2").flapping == false)
    }

    /// sdk.md 6: purchases are linked by what is posted, never by the device they share.
    @Test func anotherUserOfTheSamePhoneHasNothingUntilItPosts() async throws {
        let bench = try await Bench.make()
        try await bench.identify("user_a")
        try await bench.attribute("user_a", "T1")
        try await bench.identify("user_b")
        #expect(try await bench.customer("user_b")?.purchases.isEmpty == true)
        #expect(try await bench.customer("user_a")?.purchases.count == 1)
    }

    /// sdk.md 9: a customer is made by identify and attribute, once per id, however often.
    @Test func repeatedCallsOfAnIdMakeOneCustomer() async throws {
        let bench = try await Bench.make()
        for _ in 0..<5 {
            try await bench.identify("$anon_1")
            try await bench.attribute("$anon_1", "T1")
        }
        #expect(try await bench.count("customers") == 1)
        #expect(try await bench.count("purchases") == 1)
        #expect(try await bench.count("purchase_moves") == 1)
    }

    /// sdk.md 49: tokens that prove nothing are ignored: the raw link stands, unverified.
    @Test func tokensThatProveNothingLeaveARawLink() async throws {
        let bench = try await Bench.make()
        let useless = [
            TestPKI().sign(TestPKITransaction()), bench.sign("T1") { $0.bundleID = "com.example.other" },
            bench.sign("T1") { $0.environment = "Xcode" },
            TestPKI.jws(
                header: #"{"alg":"none"}"#, payload: Array(TestPKITransaction().json.utf8), key: TestPKIKey(.p256)),
        ]
        for (index, token) in useless.enumerated() {
            try await bench.attribute("user_1", "T\(index)", jws: token)
            #expect(try await bench.purchase("T\(index)").jwsVerified == false)
            #expect(try await bench.purchase("T\(index)").owner == "user_1")
        }
        #expect(try await bench.count("transactions") == 0)
        // A genuine one that names another lineage than the body links only what Apple signed.
        try await bench.attribute("user_1", "claimed", jws: bench.sign("signed"))
        #expect(try await bench.purchase("signed").jwsVerified)
        #expect(try await bench.count("purchases") == Int64(useless.count + 1))
    }

    /// sdk.md 50: a token signed while its certificate was valid counts after that has expired.
    @Test func anOldTokenCountsAfterItsCertificateExpired() async throws {
        let bench = try await Bench.make()
        #expect(bench.pki.leaf.notAfter < Bench.now / 1_000_000)
        try await bench.attribute("user_1", "T1", jws: bench.sign("T1"))
        #expect(try await bench.purchase("T1").jwsVerified)
    }

    /// sdk.md 51: a refunded transaction still links, and says that it is revoked; an older receipt does not undo that.
    @Test func aRefundedPurchaseIsLinkedAndRevokedForGood() async throws {
        let bench = try await Bench.make()
        let older = bench.sign("T1")
        let refunded = bench.sign("T1") {
            $0.signedDate += 1000
            $0.revocationDate = $0.signedDate
        }
        try await bench.attribute("user_1", "T1", jws: refunded)
        try await bench.attribute("user_1", "T1", jws: older)
        #expect(try await bench.purchase("T1").owner == "user_1")
        #expect(try await bench.purchase("T1").revoked)
    }

    /// sdk.md 52: a family member's transaction is stored as shared, beside the buyer's own.
    @Test func aFamilySharedPurchaseSaysSo() async throws {
        let bench = try await Bench.make()
        try await bench.attribute("buyer", "T1", jws: bench.sign("T1"))
        try await bench.attribute("member", "T2", jws: bench.sign("T2") { $0.ownership = "FAMILY_SHARED" })
        #expect(try await bench.purchase("T1").ownership == "PURCHASED")
        #expect(try await bench.purchase("T2").ownership == "FAMILY_SHARED")
        #expect(try await bench.purchase("T1").owner == "buyer")
    }
}
