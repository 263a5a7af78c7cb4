import EventLoop
import Foundation
import IngressCore
import TestSupport
import Testing
import Wire

/// What the token check adds to a request (`make bench-enrolment`); nothing is asserted of the time.
@Suite(.enabled(if: ProcessInfo.processInfo.environment["RATCHET_BENCH_ENROLMENT"] != nil)) struct TokenBench {
    @Test func aTokenInMemoryCostsSoMuch() async throws {
        try await IngressRig.run { rig in
            let part = rig.parts[0]
            let facts = DeviceFacts(
                organization: "demo", appID: IngressRig.demo.id, deviceID: "dev_000000000000000000000001")
            let nanoseconds = try await part.loop.run {
                let tokens = (0..<10_000).map { _ in DeviceTokens.mint() }
                for token in tokens { part.ingress.devices.remember(DeviceTokens.hash(of: token), facts) }
                let begin = clock()
                var found = 0
                for index in 0..<200_000 {
                    let finding = await part.ingress.devices.find(tokens[index % tokens.count]) { false }
                    if finding == .live(facts) { found += 1 }
                }
                #expect(found == 200_000)
                return Double(clock() - begin) / Double(CLOCKS_PER_SEC) * 1e9 / 200_000
            }
            print("bench: token check from memory, 10,000 tokens: \(Int(nanoseconds)) ns")
        }
    }
}
