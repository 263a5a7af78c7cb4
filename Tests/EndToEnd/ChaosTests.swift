import EventLoop
import Foundation
import Redis
import TestSupport
import Testing

/// Random faults against the real binaries under load. What was acknowledged is compared with Postgres at the end.
@Suite(.serialized) struct ChaosTests {
    /// Plants that can't be understood; the only dead letters there may be.
    private static let planted = 3
    /// Whatever was away: so soon after its return the intake acknowledges and writers write. Five seconds are the goal,
    /// judged in `make chaos`; inside `make test`, on a machine with other work, only what is stuck fails.
    private static let mostSecondsToResume =
        ProcessInfo.processInfo.environment["RATCHET_CHAOS_SECONDS"] == nil ? 30.0 : 5.0
    /// On top of an outage's length: when a fault counts as never recovered from.
    private static let patienceSeconds = 60

    @Test(.timeLimit(.minutes(ChaosPlan.current.mostMinutes)))
    func nothingAcknowledgedIsLostAndServiceResumesWithinFiveSecondsOfEachFault() async throws {
        let plan = ChaosPlan.current
        tell("chaos: seed \(plan.seed), outages of \(plan.outageSeconds) s")
        let pki = TestPKI()
        let ledger = ChaosLedger(pki: pki)
        let chaos = try await ChaosSystem(pki: pki, outageMilliseconds: plan.outageMilliseconds)
        do {
            try await chaos.system.plantMalformedJobs(Self.planted)
            async let posting: Void = ledger.post(to: chaos.system)
            var report: ChaosReport
            do {
                report = try await injectAll(plan, chaos, ledger)
            } catch {
                ledger.abandon()
                try? await posting
                throw error
            }
            ledger.end()
            try await posting
            try await chaos.system.waitUntilDrained()
            try await judge(plan, chaos, ledger, &report)
        } catch {
            Issue.record("\(error)\n\(chaos.system.tails)")
        }
        await chaos.stop()
    }

    private func injectAll(
        _ plan: ChaosPlan, _ chaos: ChaosSystem, _ ledger: ChaosLedger
    ) async throws -> ChaosReport {
        var report = ChaosReport()
        var faults = plan.faults()
        let time = chaos.system.loop.time
        let began = time.monotonicNanoseconds
        var count = 0
        while let fault = faults.next() {
            let seconds = (time.monotonicNanoseconds - began) / 1_000_000_000
            if count >= plan.kinds.count && seconds >= plan.seconds { break }
            count += 1
            // A while of peace, so that a fault meets a system at work.
            await chaos.system.loop.sleep(milliseconds: 500)
            ledger.enter(window: count)
            tell("chaos: \(seconds) s: \(fault.rawValue)")
            let recovery = try await recovery(from: chaos.inject(fault), chaos, ledger, plan)
            report.add(fault, recovery)
            #expect(recovery.acknowledged <= Self.mostSecondsToResume, "acknowledging again after: \(fault.rawValue)")
            #expect(recovery.written <= Self.mostSecondsToResume, "writing again after: \(fault.rawValue)")
        }
        return report
    }

    private func recovery(
        from injected: ChaosSystem.Injected, _ chaos: ChaosSystem, _ ledger: ChaosLedger, _ plan: ChaosPlan
    ) async throws -> ChaosReport.Recovery {
        let time = chaos.system.loop.time
        let before = time.wallMilliseconds - (time.monotonicNanoseconds - injected.end) / 1_000_000
        async let rest: Void = injected.rest()
        let limit = injected.end + Int64(Self.patienceSeconds + plan.outageSeconds) * 1_000_000_000
        func seconds(_ what: String, _ reached: () async throws -> Bool) async throws -> Double {
            while try await !reached() {
                if time.monotonicNanoseconds > limit { throw RatchetProcess.Failure(description: "never \(what)") }
                await chaos.system.loop.sleep(milliseconds: 10)
            }
            return Double(time.monotonicNanoseconds - injected.end) / 1e9
        }
        let written = try await chaos.written()
        let toWritten = try await seconds("wrote again") { try await chaos.written() > written }
        let toDrained = try await seconds("drained") { try await chaos.isDrained(before: before) }
        try await rest
        _ = try await seconds("acknowledged again") {
            ledger.firstAcknowledgement(ofRequestsAfter: injected.end) != nil
        }
        let acknowledged = ledger.firstAcknowledgement(ofRequestsAfter: injected.end) ?? limit
        return ChaosReport.Recovery(
            acknowledged: Double(acknowledged - injected.end) / 1e9, written: toWritten, drained: toDrained)
    }

    private func judge(
        _ plan: ChaosPlan, _ chaos: ChaosSystem, _ ledger: ChaosLedger, _ report: inout ChaosReport
    ) async throws {
        let people = ledger.people
        let verdict = try await ChaosVerdict(people, in: chaos.system)
        report.add(verdict)
        #expect(verdict.lost.isEmpty, "lost: \(verdict.findings)")
        #expect(verdict.doubled.isEmpty, "doubled: \(verdict.findings)")
        #expect(try await chaos.system.deadLetters() == Self.planted)
        #expect(chaos.unexpectedEnds == 0, "a process ended by itself")

        // Each write that the queue took left it once.
        let counts = try await chaos.statistics()
        let toWriter = (counts["accepted:write"] ?? 0) + (counts["forward:verify"] ?? 0)
        #expect(counts["done:write"] == toWriter)
        #expect(counts["forward:verify"] == counts["accepted:verify"])
        let taken = (counts["accepted:write"] ?? 0) + (counts["accepted:verify"] ?? 0)
        let calls = people.flatMap { zip($0.workload.scripts[0], $0.entries) }.filter { !$0.0.isDropped }
        #expect(taken >= calls.count && taken <= calls.reduce(0) { $0 + $1.1.attempts })

        let summary =
            "\(ledger.acknowledgedCount) writes acknowledged, \(ledger.refused) calls answered 503 and"
            + " \(ledger.broken) broken off, each sent again; seed \(plan.seed), outages of \(plan.outageSeconds) s"
        tell("chaos: \(summary)\n\(report.table)")
        if let path = plan.report {
            try "\(report.table)\n\n\(summary)\n".write(toFile: path, atomically: true, encoding: .utf8)
        }
    }

    /// What was acknowledged before is gone by the operator's hand; all of it that began later must be there.
    @Test(.timeLimit(.minutes(3)))
    func everythingWorksAfterAWipeUnderTrafficWithoutARestart() async throws {
        let pki = TestPKI()
        let ledger = ChaosLedger(pki: pki)
        let chaos = try await ChaosSystem(pki: pki, outageMilliseconds: 1000)
        do {
            async let posting: Void = ledger.post(to: chaos.system)
            let loop = chaos.system.loop
            await loop.sleep(milliseconds: 2000)
            // Writers that stand still leave acknowledged writes in the queue, to be wiped with it.
            for writer in chaos.system.writers { writer.kill(SIGSTOP) }
            await loop.sleep(milliseconds: 1000)
            try await chaos.system.redis.command(["FLUSHALL"])
            let wiped = loop.time.monotonicNanoseconds
            for writer in chaos.system.writers { writer.kill(SIGCONT) }
            while ledger.firstAcknowledgement(ofRequestsAfter: wiped) == nil { await loop.sleep(milliseconds: 10) }
            let seconds = Double((ledger.firstAcknowledgement(ofRequestsAfter: wiped) ?? wiped) - wiped) / 1e9
            tell("chaos: acknowledged again \(seconds) s after FLUSHALL")
            #expect(seconds <= Self.mostSecondsToResume)
            await loop.sleep(milliseconds: 3000)
            ledger.end()
            try await posting
            try await chaos.system.waitUntilDrained()
            let all = try await ChaosVerdict(ledger.people, in: chaos.system)
            #expect(!all.lost.isEmpty, "a ledger that misses nothing after a wipe would miss nothing ever")
            let later = ledger.people.filter { $0.began > wiped }
            #expect(later.count > 20)
            let verdict = try await ChaosVerdict(later, in: chaos.system)
            #expect(verdict.lost.isEmpty, "lost: \(verdict.findings)")
            #expect(verdict.doubled.isEmpty, "doubled: \(verdict.findings)")
            #expect(try await chaos.system.deadLetters() == 0)
            #expect(chaos.unexpectedEnds == 0, "a process ended by itself")
        } catch {
            ledger.abandon()
            Issue.record("\(error)\n\(chaos.system.tails)")
        }
        await chaos.stop()
    }

    /// The jobs of a batch whose worker died are suspects. They must not hold up the lane for long for that.
    @Test(.timeLimit(.minutes(3)))
    func theFullBatchesOfKilledWritersAreDoneWithinHalfAMinute() async throws {
        let pki = TestPKI()
        let ledger = ChaosLedger(pki: pki)
        let chaos = try await ChaosSystem(pki: pki, outageMilliseconds: 1000)
        do {
            let system = chaos.system
            let time = system.loop.time
            let away = chaos.kill(system.writers)
            async let posting: Void = ledger.post(to: system)
            while ledger.acknowledgedCount < 4000 { await system.loop.sleep(milliseconds: 50) }
            ledger.end()
            try await posting
            system.database.freeze()
            // A writer that starts looks into every partition at once, so it takes a full batch.
            try await away.rest()
            var pending: Int64 = 0
            for _ in 0..<400 where pending < 1500 {
                await system.loop.sleep(milliseconds: 50)
                pending = try await system.loop.run { try await chaos.pendingWrites() }
            }
            #expect(pending >= 1500)
            let injected = chaos.kill(system.writers)
            system.database.thaw()
            try await injected.rest()
            try await system.waitUntilDrained()
            let seconds = Double(time.monotonicNanoseconds - injected.end) / 1e9
            tell("chaos: \(pending) jobs of two killed writers done after \(seconds) s")
            #expect(seconds < 30)
            let verdict = try await ChaosVerdict(ledger.people, in: system)
            #expect(verdict.lost.isEmpty, "lost: \(verdict.findings)")
            #expect(verdict.doubled.isEmpty, "doubled: \(verdict.findings)")
            #expect(try await system.deadLetters() == 0)
        } catch {
            ledger.abandon()
            Issue.record("\(error)\n\(chaos.system.tails)")
        }
        await chaos.stop()
    }
}
