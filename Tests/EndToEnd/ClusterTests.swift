import EventLoop
import Foundation
import Jobs
import Redis
import RedisQueue
import Synchronization
import TestSupport
import Testing

/// The real binaries under load on a Redis Cluster and on a primary with sentinels, with servers killed, frozen and
/// moved. What was acknowledged is compared with Postgres at the end. Minutes long: `make cluster-test` runs it.
@Suite(.serialized, .enabled(if: ProcessInfo.processInfo.environment["RATCHET_CLUSTER_TEST"] != nil))
struct ClusterTests {
    /// Redis decides after two seconds of silence and needs about one more to agree; five on top are ours.
    private static let mostSecondsToResume = 8.0
    /// When somebody starts a killed server again, or a frozen one wakes up: well after it has been replaced.
    private static let awayMilliseconds: Int64 = 7000

    /// Shorter than the silence after which others would take a node for dead.
    private static let behindMilliseconds: Int64 = 1500

    /// Every primary has one replica. Once that has taken over there is none left to wait for until the killed server is
    /// back, so calls for its partitions are refused till then; jobs are written meanwhile.
    @Test(.timeLimit(.minutes(5)))
    func aClusterLosesPrimariesAndMovesSlotsAndNothingAcknowledgedIsLost() async throws {
        let cluster = try await TestRedisCluster.start(FailoverSystem.options, nodeTimeoutMilliseconds: 2000)
        let system = try await FailoverSystem((cluster.nodes[0], cluster.address, cluster.url), replicas: 1)
        await system.run { run in
            let keys = system.system.keys
            let partition = 3
            let away = Double(Self.awayMilliseconds) / 1000
            let loop = system.system.loop
            let victim = try await cluster.primary(of: keys.meta(partition))
            try await run.fault("primary killed, back after \(Int(away)) s", partition, refuses: away) {
                await victim.stop()
                await loop.sleep(milliseconds: Self.awayMilliseconds)
                try await victim.start()
                try await cluster.waitUntilWhole()
            }
            // What was written meanwhile is gone with the primary: none of it may have been acknowledged.
            let replica = try await cluster.primary(of: keys.meta(partition))
            try await run.fault("replica 1.5 s behind, primary killed", partition, refuses: away) {
                try await Self.holdBack(victim, of: replica)
                await loop.sleep(milliseconds: Self.behindMilliseconds)
                await replica.stop()
                victim.thaw()
                await loop.sleep(milliseconds: Self.awayMilliseconds)
                try await replica.start()
                try await cluster.waitUntilWhole()
            }
            try await run.fault("ordered failover", partition) {
                try await replica.command(["CLUSTER", "FAILOVER"])
            }
            let source = try await cluster.primary(of: keys.meta(partition))
            var target: TestRedis?
            for partition in 0..<keys.partitions where target == nil {
                let node = try await cluster.primary(of: keys.meta(partition))
                if node !== source { target = node }
            }
            let destination = try #require(target)
            try await run.fault("slot of a partition moved", partition) {
                try await cluster.move(
                    slot: try await cluster.slot(of: keys.meta(partition)), from: source, to: destination)
            }
            try await run.fault("primary frozen for \(Int(away)) s", partition, refuses: away) {
                destination.freeze()
                await loop.sleep(milliseconds: Self.awayMilliseconds)
                destination.thaw()
                try await cluster.waitUntilWhole()
            }
        }
        await cluster.remove()
    }

    /// Without waiting for replicas a failover alone brings everything back, but for what they did not have yet. That it
    /// is missed here shows that the ledger would miss it elsewhere.
    @Test(.timeLimit(.minutes(5)))
    func aClusterThatWaitsForNoReplicaAcknowledgesAgainByItselfAndMayLose() async throws {
        let cluster = try await TestRedisCluster.start(FailoverSystem.options, nodeTimeoutMilliseconds: 2000)
        let system = try await FailoverSystem((cluster.nodes[0], cluster.address, cluster.url), replicas: 0)
        await system.run { run in
            let keys = system.system.keys
            let victim = try await cluster.primary(of: keys.meta(3))
            try await run.fault("everysec: primary killed for good", 3) { await victim.stop() }
            let partition = 3
            let primary = cluster.nodes[0] === victim ? cluster.nodes[1] : cluster.nodes[0]
            let replica = cluster.nodes[0] === victim ? cluster.nodes[4] : cluster.nodes[3]
            try await run.fault("everysec: replica 1.5 s behind, primary killed", partition, mayLose: true) {
                // Written jobs can't be lost any more: while writers stand still, acknowledged ones are in Redis alone.
                for writer in system.system.writers { writer.kill(SIGSTOP) }
                try await Self.holdBack(replica, of: primary)
                await system.system.loop.sleep(milliseconds: Self.behindMilliseconds)
                await primary.stop()
                replica.thaw()
                for writer in system.system.writers { writer.kill(SIGCONT) }
            }
        }
        await cluster.remove()
    }

    /// Both replicas are waited for, so whichever is promoted has everything. With one of two, runs of this test lost
    /// writes: an old primary that lives on counts the replica that has not been told yet.
    @Test(.timeLimit(.minutes(5)))
    func sentinelsReplaceThePrimaryAndNothingAcknowledgedIsLost() async throws {
        let sentinel = try await TestRedisSentinel.start(FailoverSystem.options, downAfterMilliseconds: 2000)
        let system = try await FailoverSystem((sentinel.servers[0], sentinel.address, sentinel.url), replicas: 2)
        await system.run { run in
            let loop = system.system.loop
            let away = Double(Self.awayMilliseconds) / 1000 + Self.mostSecondsToDemote
            let first = try await sentinel.primary()
            try await run.fault("primary killed, back after 7 s", 0, refuses: away) {
                await first.stop()
                await loop.sleep(milliseconds: Self.awayMilliseconds)
                try await first.start()
                try await Self.waitUntilItCopies(first)
            }
            let second = try await sentinel.primary()
            #expect(second !== first)
            try await run.fault("primary frozen for 7 s", 0, refuses: away) {
                second.freeze()
                await loop.sleep(milliseconds: Self.awayMilliseconds)
                second.thaw()
                try await Self.waitUntilItCopies(second)
            }
            try await run.fault("ordered failover", 0, refuses: Self.mostSecondsToDemote) {
                // Refused for a while after the last one.
                try await sentinel.sentinels[0].eventually("a failover is begun") {
                    try await sentinel.sentinels[0].pipeline([
                        ["SENTINEL", "FAILOVER", .text(TestRedisSentinel.name)]
                    ])[0].error == nil
                }
            }
        }
        await sentinel.remove()
    }

    /// Sentinel makes an old primary a replica that late; then it still has to copy everything.
    private static let mostSecondsToDemote = 15.0

    /// From now on the replica gets nothing: standing still is not enough, since the kernel would keep for it what the
    /// primary sends.
    private static func holdBack(_ replica: TestRedis, of primary: TestRedis) async throws {
        replica.freeze()
        try await primary.command(["CLIENT", "KILL", "TYPE", "replica"])
    }

    private static func waitUntilItCopies(_ server: TestRedis) async throws {
        try await server.eventually("it copies") {
            try await server.command(["INFO", "replication"]).text?.contains("master_link_status:up") == true
        }
    }

    /// Binaries on a Redis of several servers, with people's calls coming in.
    private final class FailoverSystem: Sendable {
        static let options = TestRedis.Options(appendOnly: true, maxMemory: "512mb")

        let system: RunningSystem
        private let ledger: ChaosLedger

        init(_ redis: (TestRedis, RedisAddress, String), replicas: Int) async throws {
            let pki = TestPKI()
            ledger = ChaosLedger(pki: pki)
            var layout = RunningSystem.Layout()
            layout.redis = redis
            layout.workers = 2
            layout.environment = [
                "RATCHET_DURABILITY": replicas > 0 ? "replicated" : "everysec", "RATCHET_REPLICAS": String(replicas),
                "RATCHET_LIMIT_UNATTESTED_PER_MINUTE": "0",
            ]
            system = try await RunningSystem.start(extraRoots: pki.rootPEM, layout)
        }

        func run(_ body: (Run) async throws -> Void) async {
            let run = Run(system: system, ledger: ledger)
            do {
                async let posting: Void = ledger.post(to: system)
                do {
                    await system.loop.sleep(milliseconds: 2000)
                    try await body(run)
                } catch {
                    ledger.abandon()
                    try? await posting
                    throw error
                }
                ledger.end()
                try await posting
                try await run.eventually("everything is done") {
                    try await self.system.waitUntilDrained()
                    return true
                }
                try await run.judge()
            } catch {
                ledger.abandon()
                Issue.record("\(error)\n\(system.tails)")
            }
            await system.stop()
        }
    }

    /// The faults of one run, each with what it did to callers and workers.
    private final class Run {
        private struct Line {
            let name: String
            let waited: Double
            let paused: Double
        }
        private let system: RunningSystem
        private let ledger: ChaosLedger
        private var lines: [Line] = []
        /// Windows in which something must be lost.
        private var lossy: Set<Int> = []

        init(system: RunningSystem, ledger: ChaosLedger) {
            self.system = system
            self.ledger = ledger
        }

        private var now: Int64 { system.loop.time.monotonicNanoseconds }

        /// Brings a fault about and watches, until a while after it.
        /// - Parameters:
        ///   - partition: one that the fault concerns.
        ///   - refuses: how long calls are rightly refused, in seconds.
        ///   - mayLose: what is promised leaves room for a loss, and this fault makes one.
        func fault(
            _ name: String, _ partition: Int, refuses: Double = 0, mayLose: Bool = false,
            _ inject: () async throws -> Void
        ) async throws {
            if mayLose { lossy.insert(lines.count + 1) }
            ledger.enter(window: lines.count + 1)
            tell("cluster: \(name)")
            let began = now
            let watch = PauseWatch(system: system, partition: partition)
            let watching = Task { await watch.run() }
            defer { watching.cancel() }
            try await inject()
            // Long enough for what comes after a failover that was begun just now.
            await system.loop.sleep(milliseconds: 5000)
            let end = now
            // A call that is still refused has waited longer than all that were acknowledged.
            while watch.lastIncrease < end || ledger.isWaiting(sentBefore: end) {
                await system.loop.sleep(milliseconds: 20)
            }
            let waited = Double(ledger.longestWait(after: began)) / 1e9
            let paused = Double(watch.longestPause) / 1e9
            lines.append(Line(name: name, waited: waited, paused: paused))
            #expect(waited <= mostSecondsToResume + refuses, "a call's wait after: \(name)")
            // Callers that all wait for one refused partition send nothing to be written.
            #expect(paused <= mostSecondsToResume + refuses, "a pause in writing after: \(name)")
        }

        /// How long a partition went without a job being written.
        private final class PauseWatch: Sendable {
            private let system: RunningSystem
            private let partition: Int
            private let state: Mutex<(done: Int64, at: Int64, longest: Int64)>

            init(system: RunningSystem, partition: Int) {
                self.system = system
                self.partition = partition
                state = Mutex((0, system.loop.time.monotonicNanoseconds, 0))
            }

            var lastIncrease: Int64 { state.withLock { $0.at } }
            /// Nanoseconds.
            var longestPause: Int64 { state.withLock { $0.longest } }

            func run() async {
                while !Task.isCancelled {
                    let done = try? await system.loop.run { [client = system.client, keys = system.keys, partition] in
                        try await client.command(["HGET", .text(keys.stats(partition)), "done:write"]).int64 ?? 0
                    }
                    let now = system.loop.time.monotonicNanoseconds
                    state.withLock { state in
                        // A new primary may know of a little less: that is no progress, and another beginning.
                        guard let done, done != state.done else { return }
                        if done > state.done {
                            state.longest = max(state.longest, now - state.at)
                            state.at = now
                        }
                        state.done = done
                    }
                    await system.loop.sleep(milliseconds: 20)
                }
            }
        }

        func eventually(_ claim: String, _ condition: () async throws -> Bool) async throws {
            let end = ContinuousClock.now + .seconds(60)
            while true {
                // Redis may be away for the one who looks, too.
                if (try? await condition()) == true { return }
                guard ContinuousClock.now < end else { throw RatchetProcess.Failure(description: "never: \(claim)") }
                await system.loop.sleep(milliseconds: 20)
            }
        }

        func judge() async throws {
            let verdict = try await ChaosVerdict(ledger.people, in: system)
            // A fault's loss may be of what was acknowledged just before it.
            let lost = verdict.lost.keys.filter { !lossy.contains($0) && !lossy.contains($0 + 1) }
            #expect(lost.isEmpty, "lost: \(verdict.findings)")
            #expect(lossy.isEmpty || !verdict.lost.isEmpty, "a ledger that misses nothing here would miss nothing ever")
            #expect(verdict.doubled.isEmpty, "doubled: \(verdict.findings)")
            #expect(try await system.deadLetters() == 0)
            #expect(ledger.people.count > 50)
            var table = [
                "| fault | writes acknowledged | lost | doubled | longest wait of a call, s | longest pause in writing, s |",
                "| --- | --: | --: | --: | --: | --: |",
            ]
            for (index, line) in lines.enumerated() {
                let window = index + 1
                table.append(
                    "| \(line.name) | \(verdict.looked[window] ?? 0) | \(verdict.lost[window] ?? 0)"
                        + " | \(verdict.doubled[window] ?? 0) | \(String(format: "%.2f", line.waited))"
                        + " | \(String(format: "%.2f", line.paused)) |")
            }
            tell(table.joined(separator: "\n"))
            tell(
                "cluster: \(ledger.acknowledgedCount) writes acknowledged, \(ledger.refused) calls answered 503 and"
                    + " \(ledger.broken) broken off, each sent again")
        }
    }
}

extension Result {
    fileprivate var error: Failure? { if case .failure(let error) = self { error } else { nil } }
}
