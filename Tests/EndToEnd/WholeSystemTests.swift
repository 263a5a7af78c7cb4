import EventLoop
import Foundation
import Postgres
import Redis
import RedisQueue
import Store
import Synchronization
import TestSupport
import Testing

/// What the posting and the killing tasks tell each other.
final class Observations: Sendable {
    private struct State {
        var answers = 0
        var ended = false
        var sockets: Set<String> = []
        var waiters: [(count: Int, continuation: CheckedContinuation<Void, Never>)] = []
    }
    private let state = Mutex(State())
    var sockets: Set<String> { state.withLock { $0.sockets } }

    func countAnswer() { change { $0.answers += 1 } }
    /// Nothing more will be posted, for whatever reason.
    func end() { change { $0.ended = true } }
    func add(sockets: Set<String>) { change { $0.sockets.formUnion(sockets) } }

    private func change(_ change: (inout State) -> Void) {
        let ready = state.withLock { state in
            change(&state)
            let (ended, answers) = (state.ended, state.answers)
            defer { state.waiters.removeAll { ended || $0.count <= answers } }
            return state.waiters.filter { ended || $0.count <= answers }.map(\.continuation)
        }
        for continuation in ready { continuation.resume() }
    }

    /// Returns once that many writes were answered, or none will be any more.
    func answered(_ count: Int) async {
        await withCheckedContinuation { continuation in
            let now = state.withLock { state in
                if state.ended || state.answers >= count { return true }
                state.waiters.append((count, continuation))
                return false
            }
            if now { continuation.resume() }
        }
    }
}

/// The real binaries under load, with their real servers, killed while they work.
@Suite struct WholeSystemTests {
    /// 8 writes each: 2,000 in all.
    private static let people = 250
    /// Plants that can't be understood; the only dead letters there may be.
    private static let planted = 3

    @Test(.timeLimit(.minutes(5)))
    func everyAcknowledgedWriteIsInPostgresAfterCrashesOfTheWorkers() async throws {
        let pki = TestPKI()
        let workload = Workload(people: Self.people, pki: pki, stranger: TestPKI())
        let system = try await RunningSystem.start(extraRoots: pki.rootPEM)
        do {
            try await system.plantMalformedJobs(Self.planted)
            let seen = Observations()
            try await withThrowingTaskGroup(of: Void.self) { group in
                for lane in 0..<8 {
                    let scripts = stride(from: lane, to: workload.scripts.count, by: 8).map { workload.scripts[$0] }
                    group.addTask {
                        do {
                            try await system.post(scripts) { seen.countAnswer() }
                        } catch {
                            seen.end()
                            throw error
                        }
                    }
                }
                group.addTask {
                    // At a fifth, two and three fifths of the way: writer, verifier, writer.
                    let total = workload.scripts.count * 8
                    for (part, victim) in [(1, system.writer), (2, system.verifier), (3, system.writer)] {
                        await seen.answered(total * part / 5)
                        seen.add(sockets: system.openSockets(of: system.verifier))
                        try await victim.crashAndRestart()
                    }
                }
                try await group.waitForAll()
            }
            seen.add(sockets: system.openSockets(of: system.verifier))
            try await system.waitUntilDrained()
            try await check(system, workload)
            // The verifier's sockets: those to Redis, and the loopback listener for operations.
            #expect(seen.sockets == ["unix", "tcp listening on loopback"])
        } catch {
            Issue.record("\(error)\n\(system.tails)")
        }
        await system.stop()
    }

    private func check(_ system: RunningSystem, _ workload: Workload) async throws {
        let counts = try await system.counts()
        #expect(counts.ownerWrites == workload.ownerWrites)
        #expect(counts.customers == workload.customers.count)
        #expect(counts.purchases == workload.purchases.count)
        #expect(counts.transactions == Self.people)
        #expect(try await system.deadLetters() == Self.planted)
        // A hint for operators: a writer that dies between its commit and its receipt counts a second's worth again.
        #expect(counts.dropped >= workload.dropped)
        try await Self.checkRows(system, workload)
    }

    /// Compares what is shown of a workload's customers and purchases with its model.
    static func checkRows(_ system: RunningSystem, _ workload: Workload) async throws {
        for (id, expected) in workload.customers {
            let found = try #require(try await system.customer(id), "customer \(id) is missing")
            let attributes = found.attributes.reduce(into: [String: String]()) { $0[$1.key] = $1.value }
            #expect(attributes == expected.attributes, "attributes of \(id)")
            #expect(found.platform == (expected.attributes.isEmpty ? nil : "ios"))
            #expect(found.verified == workload.isVerified(id), "verified of \(id)")
            #expect(!found.attested)
        }
        for (id, expected) in workload.purchases {
            let (found, history) = try #require(try await system.purchase(id), "purchase \(id) is missing")
            #expect(found.owner == expected.owner, "owner of \(id)")
            #expect(found.jwsVerified == expected.jwsVerified, "proof of \(id)")
            #expect(found.productID == expected.productID, "product of \(id)")
            #expect(found.environment == expected.environment, "environment of \(id)")
            #expect(history.map(\.to) == expected.moves, "history of \(id)")
            // The login's re-post is raw: it took a proven purchase without proof of its own.
            #expect(found.contested == (expected.jwsVerified && expected.moves.count > 1), "contested of \(id)")
        }
    }
}
