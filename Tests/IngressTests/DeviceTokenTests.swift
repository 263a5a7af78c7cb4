import Bytes
import EventLoop
import Foundation
import IngressCore
import Jobs
import Redis
import RedisQueue
import TestSupport
import Testing
import Wire

/// What an ingress knows of device tokens, without a worker in the background: Redis, its own memory, and messages.
@Suite(.timeLimit(.minutes(2))) struct DeviceTokenTests {
    private static let facts = DeviceFacts(
        organization: "demo", appID: IngressRig.demo.id, deviceID: "dev_000000000000000000000001")

    /// Makes a token live in Redis, as an answered question does.
    private func liveToken(_ rig: IngressRig, _ facts: DeviceFacts = facts) async throws -> String {
        let token = DeviceTokens.mint()
        _ = try await rig.control.loop.run {
            try await KnownDevices(client: rig.control, keys: rig.keys)
                .remember(DeviceTokens.hash(of: token), DeviceFacts.encode(facts))
        }
        return token
    }

    private func revoke(_ rig: IngressRig, _ token: String) async throws {
        try await rig.control.loop.run {
            try await KnownDevices(client: rig.control, keys: rig.keys)
                .revoke(DeviceTokens.hash(of: token), nobody: DeviceFacts.encode(nil))
        }
    }

    private func bearer(_ token: String) -> [(String, String)] { [("Authorization", "Bearer \(token)")] }

    @Test func aLiveTokenMarksTheWriteAttestedAndNamesItsDevice() async throws {
        try await IngressRig.run { rig in
            let token = try await liveToken(rig)
            #expect(try await rig.identify(IngressRig.identifyBody("u"), bearer(token)).status == 200)
            let job = try #require(try await rig.jobs(.write).first)
            let write = try IdentifyWrite(payload: job.payload)
            #expect(write.proof.attested && write.proof.deviceID == Self.facts.deviceID)
            #expect(write.proof.unattestedReason == nil)
            #expect(job.header.organization == "demo")
        }
    }

    /// The token says whose the write is, where the bundle alone could not.
    @Test func aTokenDecidesBetweenOrganizationsThatShareABundle() async throws {
        var other = IngressRig.app("other", IngressRig.bundle)
        other.id = "app_000000000000000000000002"
        let apps = [IngressRig.demo, other]
        try await IngressRig.run({ $0.apps = apps }) { rig in
            expectOK(try await rig.identify(IngressRig.identifyBody("u")), droppedBody)
            let token = try await liveToken(
                rig, DeviceFacts(organization: "other", appID: other.id, deviceID: Self.facts.deviceID))
            #expect(try await rig.identify(IngressRig.identifyBody("u"), bearer(token)).status == 200)
            #expect(try await rig.jobs(.write).map(\.header.organization) == ["other"])
        }
    }

    @Test func anotherAppsTokenIsA400AndADisconnectedAppsA401() async throws {
        try await IngressRig.run { rig in
            let token = try await liveToken(rig)
            let other = IngressRig.identifyBody("u", bundle: "com.example.other")
            try expectError(try await rig.identify(other, bearer(token)), 400, "bundle_mismatch", field: "bundleId")
            let orphan = try await liveToken(
                rig,
                DeviceFacts(
                    organization: "demo", appID: "app_00000000000000000000000f", deviceID: Self.facts.deviceID))
            try expectError(
                try await rig.identify(IngressRig.identifyBody("u"), bearer(orphan)), 401, "invalid_token")
        }
    }

    @Test func aRevocationReachesATokenInMemoryByMessage() async throws {
        try await IngressRig.run { rig in
            let token = try await liveToken(rig)
            let part = rig.parts[0]
            #expect(try await rig.identify(IngressRig.identifyBody("u"), bearer(token)).status == 200)
            #expect(try await rig.identify(IngressRig.identifyBody("u"), bearer(token)).status == 200)
            #expect(try await part.loop.run { part.ingress.devices.fromMemory } == 1)
            try await revoke(rig, token)
            var status = 200
            for _ in 0..<1000 where status == 200 {
                status = try await rig.identify(IngressRig.identifyBody("u"), bearer(token)).status
            }
            #expect(status == 401)
        }
    }

    /// Whatever is wrong with a token, the answer is the same to the byte, and repeats nothing of what was sent.
    @Test func allRefusedTokensLookAlike() async throws {
        try await IngressRig.run { rig in
            let revoked = try await liveToken(rig)
            try await revoke(rig, revoked)
            let orphan = try await liveToken(
                rig,
                DeviceFacts(
                    organization: "demo", appID: "app_00000000000000000000000f", deviceID: Self.facts.deviceID))
            let foreign = try await liveToken(
                rig, DeviceFacts(organization: "other", appID: IngressRig.demo.id, deviceID: Self.facts.deviceID))
            var answers: Set<String> = []
            for value in [
                "Bearer \(IngressRig.nobodysToken)", "Bearer \(revoked)", "Bearer \(orphan)", "Bearer \(foreign)",
                "Bearer", "Bearer dt_x", "Basic \(revoked)", "Bearer <script>\(revoked)", "",
            ] {
                let response = try await rig.identify(
                    IngressRig.identifyBody("u"), [("Authorization", value)])
                let headers = response.headers.filter { !["x-request-id", "date"].contains($0.name.lowercased()) }
                answers.insert("\(response.status) \(headers) \(response.text)")
            }
            #expect(answers.count == 1, "\(answers)")
            #expect(answers.first?.hasPrefix("401 ") == true)
        }
    }

    /// The message of a revocation got lost: memory ends by itself, and Redis knows.
    @Test func aLostMessageHoldsForAMinuteAtTheMost() async throws {
        let time = ManualTime()
        try await IngressRig.run({ $0.time = time }) { rig in
            let token = try await liveToken(rig)
            let part = rig.parts[0]
            let find: @Sendable () async -> DeviceTokens.Finding = {
                await part.ingress.devices.find(DeviceTokens.hash(of: token)) { true }
            }
            #expect(try await part.loop.run { await find() } == .live(Self.facts))
            // In Redis alone, as if nobody had listened.
            _ = try await rig.command([
                "SET", .text(rig.keys.device(DeviceTokens.hash(of: token))), .bytes(DeviceFacts.encode(nil)),
            ])
            #expect(try await part.loop.run { await find() } == .live(Self.facts))
            time.advance(milliseconds: 60_001)
            #expect(try await part.loop.run { await find() } == .notLive)
        }
    }

    @Test func whatStandsInRedisWinsOverALateAnswer() async throws {
        try await IngressRig.run { rig in
            let token = DeviceTokens.mint()
            try await revoke(rig, token)
            let stands = try await rig.control.loop.run {
                try await KnownDevices(client: rig.control, keys: rig.keys)
                    .remember(DeviceTokens.hash(of: token), DeviceFacts.encode(Self.facts))
            }
            #expect(stands == DeviceFacts.encode(nil))
        }
    }

    @Test func anUnknownTokenIsA503WithoutAWriterAndIsAskedForOnce() async throws {
        try await IngressRig.run { rig in
            let token = DeviceTokens.mint()
            async let first = rig.identify(IngressRig.identifyBody("u"), bearer(token))
            async let second = rig.identify(IngressRig.identifyBody("u"), bearer(token))
            try expectUnavailable(try await first)
            try expectUnavailable(try await second)
            #expect(try await rig.jobs(.writeLive).count == 1)
        }
    }

    @Test func theAttestedLimitIsTheOrganizationsAcrossLoopsAndUsers() async throws {
        try await IngressRig.run({
            $0.loops = 2
            $0.partitions = 4
            // One more every thirty seconds: not while this runs.
            $0.attestedPerMinute = 2
            $0.unattestedPerMinute = 1
        }) { rig in
            let token = try await liveToken(rig)
            var passed = 0
            for index in 0..<8 {
                let response = try await rig.identify(
                    IngressRig.identifyBody("user_\(index)"), bearer(token), part: index % 2)
                if response.status == 200 { passed += 1 } else { try expectLimited(response, seconds: 1...60) }
            }
            #expect(passed == 2)
            // Writes without a token have their own.
            #expect(try await rig.identify(IngressRig.identifyBody("user_0")).status == 200)
        }
    }

    @Test func anOrganizationsOwnLimitStandsOverTheSetting() async throws {
        var app = IngressRig.demo
        app.attestedPerMinute = 2
        let apps = [app]
        try await IngressRig.run({
            $0.apps = apps
            $0.attestedPerMinute = 100
        }) { rig in
            let token = try await liveToken(rig)
            var statuses: [Int] = []
            for index in 0..<4 {
                statuses.append(
                    try await rig.identify(IngressRig.identifyBody("user_\(index)"), bearer(token)).status)
            }
            #expect(statuses == [200, 200, 429, 429])
        }
    }
}
