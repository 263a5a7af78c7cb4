import EventLoop
import Jobs
import Postgres
import Store
import TestSupport
import Testing
import Trust
import Wire

@testable import Verifier
@testable import WriterCore

/// The ratchet, whole (data.md §2): every sequence of one, two and three writes about a purchase, where each is
/// attested or not, brings a genuine signed transaction, a bad one or none, and is of one user or another. They pass the
/// verifier's and the writer's own handlers, and are compared with the rules said over again in plain loops.
@Suite struct LatticeTests {
    private enum Signed: CaseIterable { case good, bad, none }

    private struct Letter {
        let attested: Bool
        let signed: Signed
        let other: Bool

        var proven: Bool { attested || signed == .good }

        static let all = [false, true].flatMap { attested in
            Signed.allCases.flatMap { signed in
                [false, true].map { Letter(attested: attested, signed: signed, other: $0) }
            }
        }
    }

    /// One sequence: a purchase of its own, two users of its own.
    private struct Word {
        let index: Int
        let letters: [Letter]

        var id: String { "T\(index)" }
        func user(_ letter: Letter) -> String { "\(letter.other ? "b" : "a")\(index)" }
        /// Each word has its second, so that words of a run don't share stamps.
        func stamp(_ position: Int) -> Int64 { 1_795_996_800_000_000 + Int64(index) * 1_000_000 + Int64(position) }

        static let all: [Word] = {
            var words: [[Letter]] = [[]]
            var all: [[Letter]] = []
            for _ in 1...3 {
                words = words.flatMap { word in Letter.all.map { word + [$0] } }
                all += words
            }
            return all.enumerated().map { Word(index: $0.offset, letters: $0.element) }
        }()
    }

    /// What an operator sees of one word in the end.
    private struct Seen: Equatable {
        struct Move: Equatable {
            let from: String?
            let to: String
            let attested: Bool
            let jws: Bool
            let contested: Bool
        }

        struct Customer: Equatable {
            let attested: Bool
            let verified: Bool
        }

        var owner: String
        var attested: Bool
        var jwsVerified: Bool
        var contested: Bool
        var moves: [Move]
        var customers: [String: Customer]
    }

    private static func expected(_ word: Word) -> Seen {
        let owner = word.user(word.letters.last!)
        func isProven(_ test: (Letter) -> Bool) -> Bool { word.letters.contains { test($0) && $0.proven } }
        var moves: [Seen.Move] = []
        for (position, letter) in word.letters.enumerated() {
            let before = position == 0 ? nil : word.user(word.letters[position - 1])
            guard before != word.user(letter) else { continue }
            let taken = word.letters[..<position].contains { $0.proven && $0.other != letter.other }
            moves.append(
                Seen.Move(
                    from: before, to: word.user(letter), attested: letter.attested, jws: letter.signed == .good,
                    contested: !letter.proven && taken))
        }
        var customers: [String: Seen.Customer] = [:]
        for user in Set(word.letters.map(word.user)) {
            let attested = word.letters.contains { word.user($0) == user && $0.attested }
            customers[user] = Seen.Customer(
                attested: attested, verified: attested || (owner == user && isProven { word.user($0) == user }))
        }
        return Seen(
            owner: owner, attested: word.letters.contains { $0.attested },
            jwsVerified: word.letters.contains { $0.signed == .good },
            contested: !isProven { word.user($0) == owner } && isProven { word.user($0) != owner },
            moves: moves, customers: customers)
    }

    /// Runs all words' jobs through verifier and writer, and reads each word back as an operator does.
    private static func run(_ order: ([(word: Word, position: Int)]) -> [(word: Word, position: Int)]) async throws
        -> [Seen]
    {
        let pki = TestPKI()
        let stranger = TestPKI()
        let handler = VerifyHandler(
            verifier: try SignedTransactionVerifier(roots: [TrustedRoot(der: pki.rootDER)]),
            attestations: try AttestationVerifier(), time: ManualTime(wallMicroseconds: 1_820_000_000_000_000), cores: 2
        )
        let steps = order(Word.all.flatMap { word in word.letters.indices.map { (word, $0) } })
        let jobs = steps.map { word, position in
            let letter = word.letters[position]
            let transaction = TestPKITransaction().with {
                $0.transactionID = word.id
                $0.originalTransactionID = word.id
            }
            let jws: String?
            switch (letter.signed, (word.index + position) % 3) {
            case (.none, _): jws = nil
            case (.good, _): jws = pki.sign(transaction)
            case (.bad, 0): jws = stranger.sign(transaction)
            case (.bad, 1): jws = pki.sign(transaction.with { $0.bundleID = "com.example.other" })
            case (.bad, _): jws = String(pki.sign(transaction).dropLast(8)) + "AAAAAAAA"
            }
            let write = AttributeWrite(
                appUserID: word.user(letter), bundleID: "com.example.app", store: .appStore,
                originalTransactionID: word.id, evidence: jws.map { .unverified(jws: $0) } ?? .none,
                proof: WriteProof(attested: letter.attested, deviceID: letter.attested ? "dev_1" : nil))
            return FetchedJob(
                lane: .verify, partition: 0, entryID: "1-1",
                header: JobHeader(
                    kind: .attribute, version: 1, stamp: word.stamp(position), attempts: 0, organization: "demo",
                    enqueuedMilliseconds: 1),
                payload: write.encodePayload(), deliveries: 1)
        }
        let verified = try await handler.handle(jobs)
        let writes = zip(jobs, verified).compactMap { job, outcome -> FetchedJob? in
            guard case .forward(.write, let payload) = outcome else { return nil }
            var write = job
            write.payload = payload
            return write
        }
        #expect(writes.count == jobs.count)

        let store = try await TestStore.make()
        let loop = EventLoop(name: "lattice")
        defer { loop.stop() }
        let configuration = try TestPostgres.shared.get().configuration(schema: store.schema)
        let outcomes = try await loop.run { [loop] in
            let postgres = PostgresClient(configuration, on: loop)
            let writer = WriteHandler(loop: loop, postgres: postgres) { _ in }
            var outcomes: [JobOutcome] = []
            for start in stride(from: 0, to: writes.count, by: 256) {
                outcomes += try await writer.handle(Array(writes[start..<min(start + 256, writes.count)]))
            }
            return outcomes
        }
        #expect(outcomes.allSatisfy { $0 == .done })
        return try await store.withConnection { connection in
            var seen: [Seen] = []
            for word in Word.all { seen.append(try await read(word, connection)) }
            return seen
        }
    }

    private static func read(_ word: Word, _ connection: PostgresConnection) async throws(PostgresError) -> Seen {
        let now: Int64 = 1_820_000_000_000_000
        guard
            let purchase = try await Purchases.show(
                organization: "demo", originalTransactionID: word.id, nowMicroseconds: now, connection)
        else { throw PostgresError(.usage, "no purchase \(word.id)") }
        var customers: [String: Seen.Customer] = [:]
        for user in ["a\(word.index)", "b\(word.index)"] {
            guard
                let found = try await Customers.show(
                    organization: "demo", appUserID: user, nowMicroseconds: now, connection)
            else { continue }
            customers[user] = Seen.Customer(attested: found.attested, verified: found.verified)
        }
        return Seen(
            owner: purchase.owner, attested: purchase.attested, jwsVerified: purchase.jwsVerified,
            contested: purchase.contested,
            moves: try await Purchases.history(of: purchase, connection).map {
                Seen.Move(from: $0.from, to: $0.to, attested: $0.attested, jws: $0.jws, contested: $0.contested)
            }, customers: customers)
    }

    private static func compare(_ seen: [Seen]) {
        #expect(seen.count == 12 + 144 + 1728)
        for (word, found) in zip(Word.all, seen) {
            let wanted = expected(word)
            guard found != wanted else { continue }
            Issue.record("\(word.letters)\nends as   \(found)\ninstead of \(wanted)")
        }
    }

    @Test func everySequenceOfProofAndUsersEndsAsTheRulesSay() async throws {
        Self.compare(try await Self.run { $0 })
    }

    @Test func itEndsTheSameInAnyOrderAndWithEveryWriteTwice() async throws {
        var random = SeededGenerator(seed: 20_261_130)
        Self.compare(try await Self.run { ($0 + $0).shuffled(using: &random) })
    }
}
