import AppleAds
import Bytes
import EventLoop
import Postgres
import Service
import Store
import SweeperCore
import Synchronization
import TestSupport
import Testing
import Wire

@testable import SweeperCore

/// Holds, stops, leases and several sweepers.
@Suite(.timeLimit(.minutes(2))) struct SharingTests {
    /// Tokens that Apple always fails on are no outage: they keep nobody waiting for long.
    @Test func tokensThatAlwaysFailDoNotHoldTheOthersUp() async throws {
        let change: (inout SweepRig.Settings) -> Void = { $0.configuration.concurrency = 4 }
        try await SweepRig.run(change) { rig in
            for index in 0..<40 {
                rig.apple.script("bad\(index)", [.answer(status: 500, body: "")])
                try await rig.receive("bad\(index)")
            }
            try await rig.run(untilSeconds: 60)
            for index in 0..<20 { try await rig.receive("good\(index)", atSeconds: 60) }
            try await rig.run(untilSeconds: 900)
            var ended = 0
            for index in 0..<20 where try await rig.row("good\(index)").state == "organic" { ended += 1 }
            #expect(ended == 20)
            for index in 0..<40 {
                let row = try await rig.row("bad\(index)")
                #expect(row.state == "pending" && row.attempts == 0)
            }
        }
    }

    @Test func anOutageStopsTheSweepAndBurnsNothing() async throws {
        let change: (inout SweepRig.Settings) -> Void = { $0.configuration.concurrency = 4 }
        try await SweepRig.run(change, byDefault: .broken) { rig in
            for index in 0..<40 { try await rig.receive("t\(index)") }
            try await rig.run(untilSeconds: 34)
            // Those in flight when the breaker opened were asked; the others were given back as they were.
            let asked = rig.apple.total
            #expect((5...8).contains(asked), "\(asked)")
            #expect(try await rig.health() == .level(0, "nobody asks for a while: unreachable"))
            let untouched = try await rig.row("t39")
            #expect(untouched.asks == 0 && untouched.due == 5 && !untouched.isClaimed)
            // Then one at a time: at 35 s, a minute later, two, four and from then on five minutes apart.
            try await rig.run(untilSeconds: 36)
            #expect(rig.apple.total == asked + 1)
            try await rig.run(untilSeconds: 94)
            #expect(rig.apple.total == asked + 1)
            try await rig.run(untilSeconds: 96)
            #expect(rig.apple.total == asked + 2)
            try await rig.run(untilSeconds: 3_600)
            #expect((10...18).contains(rig.apple.total - asked), "\(rig.apple.total - asked) probes in an hour")
            for index in 0..<40 {
                let row = try await rig.row("t\(index)")
                #expect(row.attempts == 0 && row.state == "pending" && !row.isClaimed)
            }
            // It ends: the probe is answered, and all the others go out at once.
            for index in 0..<40 { rig.apple.script("t\(index)", [.organic]) }
            try await rig.run(untilSeconds: 3_600 + 1_300)
            for index in 0..<40 {
                let row = try await rig.row("t\(index)")
                #expect(row.state == "organic" && row.attempts == 1)
            }
        }
    }

    @Test func aFewFailuresAmongAnswersStopNothing() async throws {
        let change: (inout SweepRig.Settings) -> Void = { $0.configuration.concurrency = 1 }
        try await SweepRig.run(change) { rig in
            for index in 0..<20 {
                try await rig.receive("t\(index)", atSeconds: Int64(index) - 30)
                if index % 5 != 4 { rig.apple.script("t\(index)", [.broken, .organic]) }
            }
            try await rig.run(untilSeconds: 1)
            #expect(rig.apple.total == 20)
            #expect(rig.metric("ratchet_adservices_held") == 0)
        }
    }

    @Test func theBreakerWaitsLongerEachTimeUpToFiveMinutes() {
        var breaker = SweepBreaker()
        for _ in 1..<SweepBreaker.mostFailures { #expect(breaker.failed() == nil) }
        #expect(breaker.failed() == 30)
        for seconds in [60, 120, 240, 300, 300] {
            breaker.held()
            #expect(breaker.isProbing)
            #expect(breaker.failed() == Int64(seconds))
        }
        breaker.answered()
        #expect(breaker == SweepBreaker())
    }

    @Test func aStandstillIsSeenByWhatWasUnderWay() {
        let second: Int64 = 1_000_000_000
        var watch = StandstillWatch(now: 10 * second)
        #expect(watch.runs(at: 10 * second + second / 2) == nil)
        #expect(watch.runs(at: 12 * second) == nil, "late, but it ran")
        #expect(!watch.stoodStill(since: 0))
        #expect(watch.runs(at: 23 * second) == 11 * second)
        #expect(watch.stoodStill(since: 12 * second) && watch.stoodStill(since: 22 * second))
        #expect(watch.runs(at: 23 * second + 1) == nil)
        #expect(watch.stoodStill(since: 22 * second) && !watch.stoodStill(since: 23 * second))
    }

    @Test func whileItIsPausedNothingIsClaimed() async throws {
        try await SweepRig.run { rig in
            try await rig.receive("a")
            try await rig.execute("UPDATE adservices_sweep SET paused_at = 1")
            try await rig.run(untilSeconds: 10_000)
            #expect(rig.apple.total == 0)
            #expect(try await rig.health() == .level(0, "the sweep is paused by hand"))
            #expect(rig.metric("ratchet_adservices_paused") == 1)
            try await rig.execute("UPDATE adservices_sweep SET paused_at = NULL")
            try await rig.run(untilSeconds: 20_000)
            #expect(try await rig.row("a").state == "organic")
            #expect(rig.metric("ratchet_adservices_paused") == 0)
        }
    }

    @Test func aPauseForATimeEndsByItself() async throws {
        try await SweepRig.run { rig in
            try await rig.receive("a")
            let end = SweepRig.start + 1_000 * SweepRig.second
            try await rig.execute("UPDATE adservices_sweep SET paused_at = 1, paused_until = \(end)")
            try await rig.run(untilSeconds: 999)
            #expect(rig.apple.total == 0)
            #expect(rig.metric("ratchet_adservices_paused") == 1)
            try await rig.run(untilSeconds: 1_001)
            #expect(rig.asks("a") == [1_000])
            #expect(rig.metric("ratchet_adservices_paused") == 0)
            #expect(try await rig.health() == .good)
        }
    }

    @Test func aStopWaitsForWhatIsAskedAndGivesTheRestBack() async throws {
        let change: (inout SweepRig.Settings) -> Void = { $0.configuration.concurrency = 2 }
        try await SweepRig.run(change, byDefault: .released(.organic)) { rig in
            for index in 0..<6 { try await rig.receive("t\(index)", atSeconds: Int64(index) - 20) }
            try await rig.startSweep()
            await rig.apple.waitForAsks(2)
            try await rig.orderStop()
            rig.apple.release()
            await rig.stopSweep()
            #expect(rig.apple.total == 2)
            for index in 0..<6 {
                let row = try await rig.row("t\(index)")
                #expect(row.state == (index < 2 ? "organic" : "pending") && !row.isClaimed)
                if index >= 2 { #expect(row.due == Int64(index) - 15 && row.asks == 0) }
            }
        }
    }

    /// Claims go on where the last one ended. When they have come to the end, what became due before is claimed at once.
    @Test func whatBecomesDueBehindTheClaimsIsAskedAboutToo() async throws {
        let change: (inout SweepRig.Settings) -> Void = { $0.configuration.concurrency = 1 }
        try await SweepRig.run(change) { rig in
            rig.apple.script("t0", [.released(.organic)])
            for index in 0..<10 { try await rig.receive("t\(index)", atSeconds: Int64(index) - 20) }
            try await rig.startSweep()
            await rig.apple.waitForAsks(1)
            try await rig.receive("early", atSeconds: -30)
            rig.apple.release()
            try await rig.run(untilSeconds: 1)
            for install in (0..<10).map({ "t\($0)" }) + ["early"] {
                #expect(try await rig.row(install).state == "organic", "\(install)")
            }
        }
    }

    @Test func aTokenThatCannotBeDecryptedIsKeptForTheRightSecret() async throws {
        try await SweepRig.run { rig in
            try await rig.receive("a", sealed: Array(repeating: 1, count: 60))
            try await rig.run(untilSeconds: 20)
            let row = try await rig.row("a")
            #expect(row.state == "pending" && row.holdsToken && row.asks == 0 && row.due == 905 && !row.isClaimed)
            #expect(rig.metric("ratchet_adservices_unreadable_tokens_total") == 1)
            #expect(rig.log.all.contains { $0.contains("RATCHET_SECRET") })
            try await rig.run(untilSeconds: 100_000)
            let end = try await rig.row("a")
            #expect(end.state == "expired" && end.ended == 86_400 && end.asks == 0 && !end.holdsToken)
            #expect(rig.apple.total == 0)
            let tries = try #require(rig.metric("ratchet_adservices_unreadable_tokens_total"))
            #expect((90...97).contains(tries), "every 15 minutes of a day: \(tries)")
        }
    }

    @Test func aTokenIsAskedAboutOnceItsSecretIsBack() async throws {
        try await SweepRig.run { rig in
            try await rig.receive("a", sealed: Array(repeating: 1, count: 60))
            try await rig.receive("b")
            try await rig.run(untilSeconds: 40_000)
            #expect(try await rig.row("a").state == "pending")
            #expect(try await rig.row("b").state == "organic", "the others go on meanwhile")
            let sealed = rig.sealer.seal(
                Array("a".utf8),
                context: AdServicesToken.context(organization: "o", bundleID: "com.example.app", subject: "a"))
            try await rig.store.withConnection { connection in
                _ = try await connection.query(
                    "UPDATE adservices_tokens SET sealed_token = $1 WHERE subject = 'a'", [.bytes(sealed)])
            }
            try await rig.run(untilSeconds: 41_000)
            #expect(try await rig.row("a").state == "organic" && rig.asks("a").count == 1)
        }
    }

    /// A result that comes after the lease has gone to another sweeper is not its token's any more.
    @Test func aLostLeaseThrowsTheResultAway() async throws {
        try await SweepRig.run(byDefault: .released(.organic)) { rig in
            try await rig.receive("a", atSeconds: -10)
            try await rig.startSweep()
            await rig.apple.waitForAsks(1)
            try await rig.execute("UPDATE adservices_tokens SET lease = decode(repeat('ab', 16), 'hex')")
            try await rig.orderStop()
            rig.apple.release()
            await rig.stopSweep()
            let row = try await rig.row("a")
            #expect(row.state == "pending" && row.asks == 0 && row.holdsToken)
            #expect(rig.metric("ratchet_adservices_leases_lost_total") == 1)
            #expect(rig.metric(#"ratchet_adservices_outcomes_total{state="organic"}"#) == 0)
        }
    }

    /// While an ask is out, nobody else may ask, so it must not begin when the lease is nearly over.
    @Test func nobodyAsksWithLessThanTwelveSecondsOfALeaseLeft() async throws {
        let change: (inout SweepRig.Settings) -> Void = {
            $0.configuration.concurrency = 1
            $0.secondsPerAsk = 25
        }
        try await SweepRig.run(change, byDefault: .released(.organic)) { rig in
            for index in 0..<4 { try await rig.receive("t\(index)", atSeconds: Int64(index) - 20) }
            try await rig.startSweep()
            // All four were claimed at 0 for 60 s. The third ask comes at 50: the two that are left are given back first.
            for count in 1...2 {
                await rig.apple.waitForAsks(count)
                rig.apple.release()
            }
            await rig.apple.waitForAsks(3)
            // A claim that went on where the first one ended finds the last of them first.
            let third = rig.asks("t2").isEmpty ? "t3" : "t2"
            let row = try await rig.row(third)
            try await rig.orderStop()
            rig.apple.release()
            #expect(rig.asks("t0") == [0] && rig.asks("t1") == [25] && rig.asks(third) == [50])
            #expect(row.isClaimed && (row.due ?? 0) >= 50 + 12, "\(row)")
        }
    }

    /// Notes what it is told in a table of its own; fails before that at first, then after it.
    private final class Target: AdServicesOutcomeTarget {
        private let calls = Mutex(0)

        func receive(_ outcomes: [SweptToken], _ connection: PostgresConnection) async throws(PostgresError) {
            let call = calls.withLock { calls in
                calls += 1
                return calls
            }
            let collision = PostgresError(.server, sqlstate: "40001", "try again")
            if call == 1 { throw collision }
            for outcome in outcomes {
                _ = try await connection.query(
                    "INSERT INTO told VALUES ($1, $2)",
                    [.text(outcome.token.key.subject), .text(outcome.ending?.rawValue)])
            }
            if call == 2 { throw collision }
        }
    }

    @Test func aCallbackIsToldInTheTransactionOfTheOutcome() async throws {
        try await SweepRig.run({ $0.target = Target() }) { rig in
            try await rig.execute("CREATE TABLE told (subject text PRIMARY KEY, state text)")
            rig.apple.script("a", [.notYet, .attributed(campaign: 7)])
            try await rig.receive("a", callback: "customer")
            try await rig.receive("b")
            try await rig.run(untilSeconds: 60)
            let states = [try await rig.row("a").state, try await rig.row("b").state]
            #expect(states == ["resolved", "organic"])
            let told = try await rig.store.withConnection { connection in
                try await connection.query("SELECT string_agg(subject || state, ',') AS told FROM told").first?
                    .optionalString("told")
            }
            #expect(told == "aresolved", "what failed left nothing, and who has no callback is not told of")
        }
    }
}
