import AppleAds
import Service
import TestSupport
import Testing

/// The vectors of the exchange, in virtual time, over real HTTP and a real database.
@Suite(.timeLimit(.minutes(2))) struct LadderInTimeTests {
    @Test func twoNotYetsAndAnAnswerResolveOnTheThirdAsk() async throws {
        try await SweepRig.run { rig in
            rig.apple.script("a", [.notYet, .notYet, .attributed(campaign: 542_370_539)])
            try await rig.receive("a")
            try await rig.run(untilSeconds: 90_000)
            let row = try await rig.row("a")
            #expect(row.state == "resolved" && row.attempts == 3 && row.asks == 3 && row.lastStatus == 200)
            #expect(row.campaign == 542_370_539 && row.keyword == nil)
            #expect(!row.holdsToken && !row.isClaimed && row.due == nil)
            let asks = rig.asks("a")
            #expect(asks.count == 3 && asks[0] == 5)
            #expect((35...38).contains(asks[1]) && (95...105).contains(asks[2]))
            #expect(rig.metric(#"ratchet_adservices_outcomes_total{state="resolved"}"#) == 1)
        }
    }

    @Test func noAttributionIsOrganicAndAskedOnce() async throws {
        try await SweepRig.run { rig in
            try await rig.receive("a")
            try await rig.run(untilSeconds: 90_000)
            let row = try await rig.row("a")
            #expect(row.state == "organic" && !row.holdsToken && row.ended == 5)
            #expect(row.payload == #"{"attribution":false}"#)
            #expect(rig.asks("a") == [5])
        }
    }

    @Test func thePlaceholderIsATest() async throws {
        try await SweepRig.run { rig in
            rig.apple.script("a", [.placeholder])
            try await rig.receive("a")
            try await rig.run(untilSeconds: 60)
            let row = try await rig.row("a")
            #expect(row.state == "test" && !row.holdsToken && row.attempts == 1)
            #expect(rig.metric(#"ratchet_adservices_outcomes_total{state="resolved"}"#) == 0)
            #expect(rig.metric(#"ratchet_adservices_outcomes_total{state="test"}"#) == 1)
        }
    }

    @Test func anInvalidTokenIsAskedAboutOnce() async throws {
        try await SweepRig.run { rig in
            rig.apple.script("a", [.invalid])
            try await rig.receive("a")
            try await rig.run(untilSeconds: 90_000)
            let row = try await rig.row("a")
            #expect(row.state == "invalid" && !row.holdsToken && row.lastStatus == 400 && row.asks == 1)
            #expect(rig.asks("a") == [5])
        }
    }

    @Test func notYetForEverIsAskedTenTimesAndExpires() async throws {
        try await SweepRig.run(byDefault: .notYet) { rig in
            try await rig.receive("a")
            try await rig.run(untilSeconds: 86_399)
            let before = try await rig.row("a")
            #expect(before.state == "pending" && before.attempts == 10 && before.holdsToken && before.due == 86_400)
            try await rig.run(untilSeconds: 200_000)
            let row = try await rig.row("a")
            #expect(row.state == "expired" && row.attempts == 10 && row.asks == 10 && row.lastStatus == 404)
            #expect(!row.holdsToken && row.ended == 86_400)
            let asks = rig.asks("a")
            #expect(asks.count == 10 && asks[9] <= 86_100)
            for (ask, planned) in zip(asks, [5, 35, 95, 395, 1_295, 4_895, 15_695, 37_295, 58_895, 80_495]) {
                #expect(ask >= min(planned, 86_100) && ask <= planned * 11 / 10 + 1, "\(asks)")
            }
            #expect(rig.metric("ratchet_adservices_expired_unready_total") == 1)
        }
    }

    @Test func tooManyStopsTheWholeSweepForAsLongAsItAsks() async throws {
        try await SweepRig.run { rig in
            rig.apple.script("a", [.tooMany(retryAfter: 120), .organic])
            try await rig.receive("a")
            try await rig.receive("b", atSeconds: 20)
            try await rig.run(untilSeconds: 100)
            let waiting = try await rig.row("a")
            #expect(waiting.state == "pending" && waiting.attempts == 0 && waiting.asks == 1 && !waiting.isClaimed)
            #expect(waiting.lastStatus == 429 && rig.asks("b") == [])
            #expect(try await rig.health() == .level(0, "nobody asks for a while: too_many"))
            #expect(rig.metric("ratchet_adservices_held") == 1)
            try await rig.run(untilSeconds: 300)
            #expect(rig.asks("a").count == 2 && rig.asks("a")[1] >= 125)
            #expect(rig.asks("b").count == 1 && rig.asks("b")[0] >= 125)
            #expect(try await [rig.row("a").state, rig.row("b").state] == ["organic", "organic"])
            #expect(try await rig.health() == .good)
            #expect(rig.metric("ratchet_adservices_held") == 0)
        }
    }

    @Test(arguments: [
        FakeAdServices.Step.html, .answer(status: 200, body: "{}"),
        .answer(status: 200, body: #"{"attribution":"true"}"#), .answer(status: 200, body: ""),
        .answer(status: 200, body: String(repeating: "x", count: 100_000)), .answer(status: 302, body: ""),
        .answer(status: 403, body: "no"),
    ])
    func whatIsNotApplesAnswerIsAskedAgain(step: FakeAdServices.Step) async throws {
        try await SweepRig.run { rig in
            rig.apple.script("a", [step, .attributed(campaign: 7)])
            try await rig.receive("a")
            try await rig.run(untilSeconds: 20)
            let row = try await rig.row("a")
            #expect(row.state == "pending" && row.attempts == 1 && row.holdsToken)
            try await rig.run(untilSeconds: 60)
            #expect(try await rig.row("a").state == "resolved")
        }
    }

    @Test func largeIDsSurviveTheWayToTheTable() async throws {
        try await SweepRig.run { rig in
            rig.apple.script("a", [.attributed(campaign: 9_007_199_254_740_993)])
            try await rig.receive("a")
            try await rig.run(untilSeconds: 20)
            #expect(try await rig.row("a").campaign == 9_007_199_254_740_993)
        }
    }

    /// One blip must not lose an install for ever.
    @Test(arguments: [
        FakeAdServices.Step.broken, .answer(status: 503, body: ""), .answer(status: 408, body: ""), .reset,
        .brokenOff,
    ])
    func troubleBurnsNoRung(step: FakeAdServices.Step) async throws {
        try await SweepRig.run { rig in
            rig.apple.script("a", [step, step, .attributed(campaign: 7)])
            try await rig.receive("a")
            try await rig.run(untilSeconds: 20)
            #expect(try await rig.row("a").attempts == 0)
            try await rig.run(untilSeconds: 90_000)
            let row = try await rig.row("a")
            #expect(row.state == "resolved" && row.attempts == 1 && row.asks == 3)
            let asks = rig.asks("a")
            #expect(asks.count == 3 && (35...38).contains(asks[1]) && (65...71).contains(asks[2]), "\(asks)")
        }
    }

    @Test func aTokenThatComesTooLateExpiresUnasked() async throws {
        try await SweepRig.run { rig in
            try await rig.receive("old", atSeconds: -86_400)
            try await rig.receive("nearly", atSeconds: -86_390)
            try await rig.run(untilSeconds: 5)
            let old = try await rig.row("old")
            #expect(old.state == "expired" && old.asks == 0 && old.lastStatus == nil && rig.asks("old") == [])
            #expect(try await rig.row("nearly").state == "organic", "to its last second a token is asked about")
            #expect(rig.metric("ratchet_adservices_expired_unready_total") == 0)
        }
    }

    @Test func retryAfterOnAServerErrorLengthensTheWait() async throws {
        try await SweepRig.run { rig in
            rig.apple.script(
                "a", [.answer(status: 503, body: "", headers: ["Retry-After: 200"]), .organic])
            try await rig.receive("a")
            try await rig.run(untilSeconds: 400)
            #expect(rig.asks("a") == [5, 205])
        }
    }

    /// An answer after the deadline is none: it neither counts nor comes in the way of the next.
    @Test func anAnswerAfterTheDeadlineIsNone() async throws {
        try await SweepRig.run({ $0.deadlineMilliseconds = 200 }) { rig in
            rig.apple.script("a", [.later(milliseconds: 500, .attributed(campaign: 7)), .organic])
            try await rig.receive("a")
            try await rig.run(untilSeconds: 300)
            let row = try await rig.row("a")
            #expect(row.state == "organic" && row.attempts == 1 && row.asks == 2 && row.campaign == nil)
            #expect(rig.metric(#"ratchet_adservices_asks_total{status="none"}"#) == 1)
        }
    }

    @Test func nothingOfATokenIsLogged() async throws {
        try await SweepRig.run { rig in
            let secret = "c2VjcmV0LXRva2VuLXRleHQ="
            rig.apple.script(secret, [.html, .broken, .brokenOff, .notYet, .organic])
            try await rig.receive("a", token: secret)
            try await rig.run(untilSeconds: 90_000)
            #expect(try await rig.row("a").state == "organic")
            let lines = rig.log.all
            #expect(lines.contains { $0.contains("apple could not be asked") })
            #expect(lines.count >= 5 && !lines.contains { $0.contains(secret) })
        }
    }
}
