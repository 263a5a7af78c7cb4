import EventLoop
import Foundation
import Redis
import RedisQueue
import TestSupport
import Testing
import Wire

@testable import IngressCore

/// What the token check adds to a request (`make bench-tokens`); nothing is asserted of the time.
@Suite(.enabled(if: ProcessInfo.processInfo.environment["RATCHET_BENCH_TOKENS"] != nil)) struct TokenBench {
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
                    let finding = await part.ingress.devices.find(DeviceTokens.hash(of: tokens[index % tokens.count])) {
                        false
                    }
                    if finding == .live(facts) { found += 1 }
                }
                #expect(found == 200_000)
                return Double(clock() - begin) / Double(CLOCKS_PER_SEC) * 1e9 / 200_000
            }
            print("bench: token check from memory, 10,000 tokens: \(Int(nanoseconds)) ns")
        }
    }

    /// The median time of a 401 by what is wrong with the token, over one connection.
    @Test func refusedTokensTakeAsLongAsEachOther() async throws {
        try await IngressRig.run { rig in
            let part = rig.parts[0]
            let revoked = DeviceTokens.mint()
            try await rig.control.loop.run {
                let devices = KnownDevices(client: rig.control, keys: rig.keys)
                try await devices.revoke(DeviceTokens.hash(of: revoked), nobody: DeviceFacts.encode(nil))
            }
            let connection = try await rig.connect()
            let body = IngressRig.identifyBody("u")
            func median(_ token: String, forgetting: Bool = false) async throws -> Double {
                var times: [Double] = []
                for _ in 0..<2000 {
                    if forgetting { try await part.loop.run { part.ingress.devices.forgetAll() } }
                    let begin = part.loop.time.monotonicNanoseconds
                    let response = try await connection.exchange(
                        "POST /api/sdk/v1/identify HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer \(token)\r\n"
                            + "Content-Length: \(body.utf8.count)\r\n\r\n\(body)")
                    #expect(response.status == 401)
                    times.append(Double(part.loop.time.monotonicNanoseconds - begin) / 1000)
                }
                return times.sorted()[times.count / 2]
            }
            for (what, token, forgetting) in [
                ("of no form", "dt_x", false), ("nobody's, remembered", IngressRig.nobodysToken, false),
                ("revoked, remembered", revoked, false), ("nobody's, from Redis", IngressRig.nobodysToken, true),
                ("revoked, from Redis", revoked, true),
            ] {
                print("bench: 401 for a token \(what): \(Int(try await median(token, forgetting: forgetting))) µs")
            }
        }
    }
}
