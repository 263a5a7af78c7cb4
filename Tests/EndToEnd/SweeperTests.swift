import EventLoop
import Foundation
import Glibc
import Postgres
import TestSupport
import Testing

@Suite(.serialized) struct SweeperTests {
    /// What becomes of a token, by its number.
    private enum Fate: Int, CaseIterable {
        case resolved, organic, test, invalid

        init(_ token: String) { self = Self.allCases[(Int(token.dropFirst()) ?? 0) % Self.allCases.count] }

        func step(_ token: String) -> FakeAdServices.Step {
            switch self {
            case .resolved: .attributed(campaign: 5_000_000_000 + (Int64(token.dropFirst()) ?? 0))
            case .organic: .organic
            case .test: .placeholder
            case .invalid: .invalid
            }
        }
    }

    /// A third of all asks fail, each in one of many ways; the same asks in each run.
    private static func unreliable(_ token: String, _ ask: Int) -> FakeAdServices.Step {
        var mixed = UInt64(token.dropFirst()).map { $0 &* 0x9E37_79B9_7F4A_7C15 } ?? 0
        mixed = (mixed ^ UInt64(ask) &* 0xBF58_476D_1CE4_E5B9) &* 0x94D0_49BB_1331_11EB
        mixed ^= mixed >> 29
        let faults: [FakeAdServices.Step] = [
            .broken, .notYet, .html, .reset, .brokenOff, .answer(status: 503, body: ""),
        ]
        guard mixed % 3 == 0 else { return .later(milliseconds: Int64(mixed % 8), Fate(token).step(token)) }
        return .later(milliseconds: Int64(mixed % 5), faults[Int(mixed / 3 % UInt64(faults.count))])
    }

    /// Two sweepers share the tokens, and one of them is killed again and again.
    private func chaos(tokens: Int, kills: Int) async throws {
        let apple = try FakeAdServices(byDefault: { Self.unreliable($0, $1) })
        let system = try await SweeperSystem(sweepers: 2, timeScale: 240, apple)
        for start in stride(from: 0, to: tokens, by: 5_000) {
            try await system.receive(start..<min(start + 5_000, tokens))
        }
        try await system.start()
        for kill in 0..<kills {
            await apple.waitForAsks((kill + 1) * tokens / (kills + 1))
            try await system.sweepers[kill % 2].crashAndRestart()
            if kill % 10 == 9 { tell("adservices chaos: \(kill + 1) kills, \(apple.total) asks") }
        }
        try await system.waitUntilAllHaveEnded(seconds: 300)
        let wrong = try await system.query { connection in
            try await connection.query(
                """
                SELECT count(*) AS n FROM (
                    SELECT *, substr(subject, 2)::bigint AS number FROM adservices_tokens
                ) AS t
                WHERE state <> (ARRAY['resolved', 'organic', 'test', 'invalid'])[number % 4 + 1]
                    OR campaign_id IS DISTINCT FROM
                        (CASE number % 4 WHEN 0 THEN 5000000000 + number WHEN 2 THEN 1234567890 END)
                    OR sealed_token IS NOT NULL OR lease IS NOT NULL OR asks < 1 OR attempts > asks
                """
            ).first?.int64("n")
        }
        #expect(wrong == 0)
        #expect(apple.overlaps == [], "no token is asked about while another sweeper holds it")
        #expect(apple.oddities == [])
        tell("adservices chaos: \(tokens) tokens, \(kills) kills, \(apple.total) asks, \(try await system.states())")
        let codes = await system.stop()
        #expect(codes == [0, 0])
    }

    @Test func everyTokenEndsRightThoughSweepersAreKilled() async throws {
        try await chaos(tokens: 1_500, kills: 6)
    }

    /// `make chaos-adservices`.
    @Test(.enabled(if: ProcessInfo.processInfo.environment["RATCHET_CHAOS_ADSERVICES"] != nil))
    func twentyThousandTokensSurviveFiftyKills() async throws {
        try await chaos(tokens: 20_000, kills: 50)
    }

    @Test func anOutageOfPostgresCostsNoAnswer() async throws {
        let apple = try FakeAdServices(byDefault: { token, _ in .released(Fate(token).step(token)) })
        let database = try TestPostgres()
        let system = try await SweeperSystem(sweepers: 1, timeScale: 1, database: database, apple)
        try await system.receive(0..<20)
        try await system.start()
        await apple.waitForAsks(20)
        try database.stop()
        apple.release()
        await system.loop.sleep(milliseconds: 2_500)
        try database.start()
        try await system.waitUntilAllHaveEnded(seconds: 40)
        #expect(apple.total == 20, "what was answered while the database was away is written down, not asked again")
        #expect(try await system.states() == ["resolved": 5, "organic": 5, "test": 5, "invalid": 5])
        await system.stop()
    }

    /// What was answered to a process that stood still is lost, and Apple is not to blame: nobody is held.
    @Test func aStandstillOpensNoBreaker() async throws {
        let apple = try FakeAdServices(byDefault: { _, ask in ask == 1 ? .released(.reset) : .organic })
        let system = try await SweeperSystem(sweepers: 1, timeScale: 1, apple)
        try await system.receive(0..<12)
        try await system.start()
        await apple.waitForAsks(12)
        system.sweepers[0].kill(SIGSTOP)
        await system.loop.sleep(milliseconds: 3_000)
        apple.release()
        await system.loop.sleep(milliseconds: 500)
        system.sweepers[0].kill(SIGCONT)
        var asked: Int64 = 0
        var held: Int64 = -1
        while asked < 12 {
            (asked, held) = try await system.query { connection in
                let row = try await connection.query(
                    """
                    SELECT held_until, (SELECT count(*) FROM adservices_tokens WHERE last_status = 0 AND lease IS NULL)
                        AS asked FROM adservices_sweep
                    """
                ).first
                return (try row?.int64("asked") ?? 0, try row?.int64("held_until") ?? -1)
            }
        }
        #expect(held == 0)
        await system.stop()
    }

    @Test func aStopAnswersForWhatWasAsked() async throws {
        let apple = try FakeAdServices(byDefault: { _, _ in .later(milliseconds: 2_000, .organic) })
        let system = try await SweeperSystem(sweepers: 1, timeScale: 1, concurrency: 4, apple)
        try await system.receive(0..<50)
        try await system.start()
        await apple.waitForAsks(4)
        let code = await system.sweepers[0].stop()
        let left = try await system.query { connection in
            let row = try await connection.query(
                """
                SELECT count(*) FILTER (WHERE state = 'organic') AS ended,
                    count(*) FILTER (WHERE state = 'pending' AND lease IS NULL AND asks = 0) AS untouched
                FROM adservices_tokens
                """
            ).first
            return [try row?.int64("ended"), try row?.int64("untouched")]
        }
        #expect(code == 0 && left == [4, 46])
        #expect(apple.total == 4)
        await system.stop()
    }

    /// A day in a few seconds, over the real processes: twice not yet, then the answer; and one that never comes.
    @Test func aScaledLadderRunsToItsEnd() async throws {
        let apple = try FakeAdServices(byDefault: { token, ask in
            token == "t0" ? .notYet : ask < 3 ? .notYet : .attributed(campaign: 7)
        })
        let system = try await SweeperSystem(sweepers: 1, timeScale: 14_400, apple)
        try await system.start()
        try await system.receive(0..<3)
        try await system.waitUntilAllHaveEnded(seconds: 60)
        #expect(try await system.states() == ["expired": 1, "resolved": 2])
        #expect(apple.asks("t1").count == 3 && apple.asks("t2").count == 3)
        #expect((6...10).contains(apple.asks("t0").count), "\(apple.asks("t0").count)")
        await system.stop()
    }
}
