import EventLoop
import Redis
import Service
import TestSupport
import Testing

@testable import RedisQueue

@Suite struct ClockSkewTests {
    @Test func aDifferenceCountsOnlyAsFarAsTheRoundTripLeavesNoDoubt() {
        func skew(_ time: Int64) -> Int64 { ClockSkew.skew(of: time, asked: 1_000, answered: 1_400) }
        #expect(skew(1_000) == 0 && skew(1_200) == 0 && skew(1_400) == 0)
        #expect(skew(1_500) == 100)
        #expect(skew(700) == -300)
    }

    @Test(.onEachRedis) func theGreatestDifferenceOfAnyNodeIsFound() async throws {
        let bench = try await QueueBench.make()
        // This process' clock stands in the past: Redis is ahead of it by what the system's own clock says.
        let past = ManualTime(wallMicroseconds: SystemTime().wallMicroseconds - 5_000_000)
        let loop = EventLoop(name: "skewed", time: past)
        let skew = try await loop.run {
            let client = RedisClient(loop: loop, address: bench.client.address, configuration: .init())
            _ = await client.waitUntilConnected(milliseconds: 20_000)
            let found = try await ClockSkew(client: client, metrics: Metrics()).measure()
            await client.close()
            return found
        }
        // A busy machine may take its time between the two looks at the clock.
        #expect(skew >= 5_000_000 && skew < 25_000_000)
        let own = try await bench.loop.run {
            try await ClockSkew(client: bench.client, metrics: Metrics()).measure()
        }
        #expect(abs(own) < 100_000)
    }
}
