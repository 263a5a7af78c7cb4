import EventLoop
import Foundation
import Jobs
import Redis
import RedisQueue
import TestSupport
import Testing

/// The real binaries under load on a Redis Cluster and on a primary with sentinels, with servers killed, frozen and
/// moved. What was acknowledged is compared with Postgres at the end. Minutes long: `make cluster-test` runs it.
@Suite(.serialized, .enabled(if: ProcessInfo.processInfo.environment["RATCHET_CLUSTER_TEST"] != nil))
struct ClusterTests {
    /// Redis decides after two seconds of silence and needs one more to agree; five on top are ours.
    private static let mostSecondsToResume = 10.0

    @Test(.timeLimit(.minutes(5)))
    func aClusterLosesPrimariesAndMovesSlotsAndNothingAcknowledgedIsLost() async throws {
        let cluster = try await TestRedisCluster.start(FailoverSystem.options, nodeTimeoutMilliseconds: 2000)
        let system = try await FailoverSystem((cluster.nodes[0], cluster.address, cluster.url), replicas: 1)
        await system.run { run in
            let keys = system.system.keys
            let partition = 3
            let victim = try await cluster.primary(of: keys.meta(partition))
            try await run.fault("primary killed (SIGKILL)", partition) { await victim.stop() }
            try await run.fault("its node comes back, as a replica", partition) {
                try await victim.start()
                try await cluster.waitUntilWhole()
            }
            let replica = victim
            try await run.fault("ordered failover (CLUSTER FAILOVER)", partition) {
                try await replica.command(["CLUSTER", "FAILOVER"])
            }
            let source = try await cluster.primary(of: keys.meta(partition))
            var target: TestRedis?
            for partition in 0..<keys.partitions where target == nil {
                let node = try await cluster.primary(of: keys.meta(partition))
                if node !== source { target = node }
            }
            let destination = try #require(target)
            try await run.fault("a partition's slot moved to another node", partition) {
                try await cluster.move(
                    slot: try await cluster.slot(of: keys.meta(partition)), from: source, to: destination)
            }
            try await run.fault("primary frozen (SIGSTOP) and replaced", partition) { destination.freeze() }
            try await run.fault("the frozen primary wakes up", partition) {
                destination.thaw()
                try await cluster.waitUntilWhole()
            }
        }
        await cluster.remove()
    }

    @Test(.timeLimit(.minutes(5)))
    func sentinelsReplaceThePrimaryAndNothingAcknowledgedIsLost() async throws {
        let sentinel = try await TestRedisSentinel.start(FailoverSystem.options, downAfterMilliseconds: 2000)
        let system = try await FailoverSystem((sentinel.servers[0], sentinel.address, sentinel.url), replicas: 1)
        await system.run { run in
            let first = try await sentinel.primary()
            try await run.fault("primary killed (SIGKILL)", 0) { await first.stop() }
            try await run.fault("it comes back, as a replica", 0) {
                try await first.start()
                try await first.eventually("it copies") {
                    try await first.command(["INFO", "replication"]).text?.contains("master_link_status:up") == true
                }
            }
            let second = try await sentinel.primary()
            #expect(second !== first)
            try await run.fault("primary frozen (SIGSTOP) and replaced", 0) { second.freeze() }
            try await run.fault("the frozen primary wakes up", 0) {
                second.thaw()
                try await second.eventually("it copies") {
                    try await second.command(["INFO", "replication"]).text?.contains("master_link_status:up") == true
                }
            }
            try await run.fault("ordered failover (SENTINEL FAILOVER)", 0) {
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
                "RATCHET_DURABILITY": "replicated", "RATCHET_REPLICAS": String(replicas),
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
            let written: Double
        }
        private let system: RunningSystem
        private let ledger: ChaosLedger
        private var lines: [Line] = []

        init(system: RunningSystem, ledger: ChaosLedger) {
            self.system = system
            self.ledger = ledger
        }

        private var now: Int64 { system.loop.time.monotonicNanoseconds }

        /// Brings a fault about, waits until writers end jobs of a partition again, and then a while longer, so that
        /// every call that had to wait has been acknowledged.
        func fault(_ name: String, _ partition: Int, _ inject: () async throws -> Void) async throws {
            ledger.enter(window: lines.count + 1)
            print("cluster: \(name)")
            let began = now
            try await inject()
            var before: Int64?
            try await eventually("jobs are written again after: \(name)") {
                guard let done = await self.written(partition) else { return false }
                guard let start = before else {
                    before = done
                    return false
                }
                return done > start
            }
            let written = Double(now - began) / 1e9
            await system.loop.sleep(milliseconds: 5000)
            let waited = Double(ledger.longestWait(after: began)) / 1e9
            lines.append(Line(name: name, waited: waited, written: written))
            #expect(waited <= mostSecondsToResume, "a call's wait after: \(name)")
            #expect(written <= mostSecondsToResume, "writing again after: \(name)")
        }

        /// Jobs that writers ended in a partition; nil while nobody says.
        private func written(_ partition: Int) async -> Int64? {
            try? await system.loop.run { [client = system.client, keys = system.keys] in
                try await client.command(["HGET", .text(keys.stats(partition)), "done:write"]).int64 ?? 0
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
            #expect(verdict.lost.isEmpty, "lost: \(verdict.findings)")
            #expect(verdict.doubled.isEmpty, "doubled: \(verdict.findings)")
            #expect(try await system.deadLetters() == 0)
            #expect(ledger.people.count > 50)
            var table = [
                "| fault | writes acknowledged | lost | doubled | longest wait of a call, s | written again, s |",
                "| --- | --: | --: | --: | --: | --: |",
            ]
            for (index, line) in lines.enumerated() {
                let window = index + 1
                table.append(
                    "| \(line.name) | \(verdict.looked[window] ?? 0) | \(verdict.lost[window] ?? 0)"
                        + " | \(verdict.doubled[window] ?? 0) | \(String(format: "%.2f", line.waited))"
                        + " | \(String(format: "%.2f", line.written)) |")
            }
            print(table.joined(separator: "\n"))
            print(
                "cluster: \(ledger.acknowledgedCount) writes acknowledged, \(ledger.refused) calls answered 503 and"
                    + " \(ledger.broken) broken off, each sent again")
        }
    }
}

extension Result {
    fileprivate var error: Failure? { if case .failure(let error) = self { error } else { nil } }
}
