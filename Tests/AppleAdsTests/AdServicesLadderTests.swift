import AppleAds
import Testing

@Suite struct AdServicesLadderTests {
    private let ladder = AdServicesLadder()
    private static let second: Int64 = 1_000_000

    private func next(
        _ attempts: Int64, burnt: Bool = true, at seconds: Int64, retryAfter: Int64? = nil, jitter: Double = 0,
        _ ladder: AdServicesLadder = AdServicesLadder()
    ) -> Int64 {
        ladder.next(
            attempts: attempts, burnt: burnt, askedAt: seconds * Self.second, receivedAt: 0,
            retryAfterSeconds: retryAfter, jitter: jitter) / Self.second
    }

    @Test func tenAsksFitIntoTheTokensLife() {
        var asks: [Int64] = [0]
        for attempts in 1...10 { asks.append(next(Int64(attempts), at: asks[asks.count - 1])) }
        // 0:00:30, 0:01:30, 0:06:30, 0:21:30, 1:21:30, 4:21:30, 10:21:30, 16:21:30, 22:21:30, and the end.
        #expect(asks == [0, 30, 90, 390, 1_290, 4_890, 15_690, 37_290, 58_890, 80_490, 86_400])
    }

    @Test(arguments: [0.0, 0.3, 0.5, 0.7, 1.0])
    func jitterGoesUpwardAndNeverCostsAnAsk(jitter: Double) {
        var asks: [Int64] = [5]
        for attempts in 1...9 {
            let last = asks[asks.count - 1]
            let plain = next(Int64(attempts), at: last)
            let due = next(Int64(attempts), at: last, jitter: jitter)
            #expect(due >= plain && due <= 86_100)
            #expect(due <= last + (plain - last) * 11 / 10 + 1)
            asks.append(due)
        }
        #expect(asks.count == 10 && Set(asks).count == 10)
        #expect(next(10, at: asks[9]) == 86_400)
    }

    @Test func anAskTooLateIsMovedToFiveMinutesBeforeTheEnd() {
        #expect(next(9, at: 70_000) == 86_100)
        #expect(next(9, at: 86_100) == 86_400, "after the last moment only the end is left")
        #expect(next(2, at: 86_099) == 86_100)
        #expect(next(2, burnt: false, at: 86_200) == 86_400)
    }

    @Test func troubleBurnsNoRungAndNeverWaitsForLong() {
        #expect(next(0, burnt: false, at: 0) == 30)
        #expect(next(1, burnt: false, at: 0) == 30)
        #expect(next(3, burnt: false, at: 0) == 300)
        #expect(next(9, burnt: false, at: 60_000) == 60_900)
    }

    @Test func retryAfterOnlyLengthensAWait() {
        #expect(next(1, at: 0, retryAfter: 120) == 120)
        #expect(next(3, at: 0, retryAfter: 120) == 300)
        #expect(next(1, at: 0, retryAfter: -5) == 30)
        #expect(next(1, at: 0, retryAfter: .max) == 86_100)
    }

    @Test func theTimeScaleDividesEverything() {
        let fast = AdServicesLadder(timeScale: 100)
        #expect(fast.end(receivedAt: 7) == 864 * Self.second + 7)
        #expect(fast.scaled(seconds: 5) == 50_000)
        #expect(next(3, at: 0, fast) == 3)
        #expect(next(1, at: 0, retryAfter: 1_000, fast) == 10)
        #expect(next(9, at: 800, fast) == 861)
    }
}
