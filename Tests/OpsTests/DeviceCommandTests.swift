import Bytes
import EventLoop
import Foundation
import OpsCore
import Redis
import RedisQueue
import Store
import TestSupport
import Testing
import Wire

@testable import CLI

@Suite struct DeviceCommandTests {
    private static let token = "dt_" + String(repeating: "t", count: 43)

    /// Two organizations, the first of which has an app and a device.
    private func make() async throws -> (TestInstallation, device: String) {
        let installation = try await TestInstallation.make()
        for name in ["demo", "other"] { #expect(await installation.run("orgs", "create", name).exitCode == 0) }
        let connected = await installation.run(
            "apps", "connect", "com.example.app", "--org", "demo", "--team", "ABCDE12345", "--json")
        let app = try #require(try parsed(connected.text)["id"]?.string)
        let key = Enrolment.DeviceKey(
            organization: "demo", appID: app, environment: "production",
            publicKey: [4] + Array(repeating: 1, count: 64), receipt: [1])
        let enrolment = Enrolment(
            keyID: SHA256Digest(of: Array(installation.schema.utf8)).bytes, bundleID: "com.example.app",
            callDigest: Array(repeating: 2, count: 32),
            tokenHash: SHA256Digest(of: Array(Self.token.utf8)).bytes, evidence: .verified(key))
        let outcome = try await installation.store { connection in
            try await Devices.enrol(enrolment, key, stamp: TestInstallation.now, connection)
        }
        guard case .enrolled(let id, _) = outcome else {
            throw TestRedis.Failure(description: "not enrolled: \(outcome)")
        }
        return (installation, id)
    }

    @Test func devicesAreListedShownAndRevokedWithinTheirOrganization() async throws {
        let (installation, device) = try await make()
        let list = try parsed(await installation.run("devices", "list", "--org", "demo", "--json").text)
        #expect(list.elements.count == 1)
        #expect(list.elements.first?["id"] == .string(device))
        #expect(list.elements.first?["revokedAt"] == .null)
        #expect(await installation.run("devices", "list", "--org", "other").text == "no devices\n")
        #expect(await installation.run("devices", "show", device, "--org", "other").exitCode == 4)
        #expect(await installation.run("devices", "revoke", device, "--org", "other").exitCode == 4)

        let revoked = await installation.run("devices", "revoke", device, "--org", "demo")
        #expect(revoked.exitCode == 0 && revoked.text == "device \(device) revoked\n")
        #expect(revoked.errors.isEmpty)
        let again = await installation.run("devices", "revoke", device, "--org", "demo")
        #expect(again.text.contains("nothing changed"))
        #expect(await installation.run("devices", "list", "--org", "demo", "--state", "live").text == "no devices\n")
        let live = await installation.run("devices", "list", "--org", "demo", "--state", "revoked", "--json")
        #expect(try parsed(live.text).elements.count == 1)
        let audit = try parsed(await installation.run("audit", "list", "--org", "demo", "--json").text)
        #expect(audit.elements.count { $0["action"] == .string("device.revoke") } == 1)

        // Redis knows it, too.
        let keys = QueueKeys(prefix: installation.prefix, partitions: 2)
        let stands = try await installation.redis.command([
            "GET", .text(keys.device(SHA256Digest(of: Array(Self.token.utf8)).bytes)),
        ])
        #expect(stands.text == "-")
    }

    @Test func aRevocationThatRedisMissedIsSaidToBeLate() async throws {
        let redis = try await TestRedis.start()
        let (installation, device) = try await make()
        await redis.remove()
        let revoked = await installation.run(
            ["devices", "revoke", device, "--org", "demo"], environment: ["RATCHET_REDIS_URL": redis.url],
            time: SystemTime())
        #expect(revoked.exitCode == 0)
        #expect(revoked.errors.contains("ratchet-writer tells it"))
        let hashes = try await installation.store { connection in
            try await EndedTokens.unpublished(limit: 10, connection)
        }
        #expect(hashes == [SHA256Digest(of: Array(Self.token.utf8)).bytes])
    }

    @Test func developmentBuildsAndLimitsAreSetByHandAndPublished() async throws {
        let (installation, _) = try await make()
        let before = try await installation.store { connection in try await DirectorySnapshot.load(connection) }
        #expect(before.apps.allSatisfy { !$0.allowsDevelopment } && before.attestedPerMinute.isEmpty)
        let allowed = await installation.run(
            "apps", "attest", "com.example.app", "--org", "demo", "--development", "allow")
        #expect(allowed.exitCode == 0)
        #expect(await installation.run("orgs", "limit", "demo", "--attested", "1000").exitCode == 0)
        let after = try await installation.store { connection in try await DirectorySnapshot.load(connection) }
        #expect(after.version > before.version)
        #expect(after.apps.map(\.allowsDevelopment) == [true])
        #expect(after.attestedPerMinute == ["demo": 1000])
        #expect(await installation.run("orgs", "limit", "demo", "--attested", "default").exitCode == 0)
        for wrong in ["-1", "1000001", "x"] {
            #expect(await installation.run("orgs", "limit", "demo", "--attested", wrong).exitCode == 2)
        }
        #expect(await installation.run("orgs", "limit", "nobody", "--attested", "1").exitCode == 4)
        #expect(
            await installation.run("apps", "attest", "com.example.none", "--org", "demo", "--development", "allow")
                .exitCode == 4)
        #expect(
            await installation.run("apps", "attest", "com.example.app", "--org", "demo", "--development", "yes")
                .exitCode == 2)
    }

    @Test func theFunnelIsShownByAppStepAndReason() async throws {
        let (installation, _) = try await make()
        let milliseconds = TestInstallation.now / 1000
        let day = EnrolmentCount.day(ofMilliseconds: milliseconds)
        try await installation.store { connection in
            func count(_ organization: String, _ step: EnrolmentStep, _ reason: String) -> EnrolmentCount {
                EnrolmentCount(
                    day: day, organization: organization, bundleID: organization.isEmpty ? "" : "com.example.app",
                    step: step, reason: reason)
            }
            try await EnrolmentCounts.add(
                [
                    count("", .challenged, ""): 5, count("demo", .attempted, ""): 4,
                    count("demo", .refused, "expired"): 3,
                ],
                nowMilliseconds: milliseconds, connection)
        }
        #expect(
            await installation.run("devices", "funnel", "--org", "demo").text == """
                app              step        reason   times
                -                challenged  -            5
                com.example.app  attempted   -            4
                com.example.app  refused     expired      3

                """)
        let json = try parsed(
            await installation.run("devices", "funnel", "--org", "other", "--days", "90", "--json").text)
        #expect(json.elements.map { $0["step"] } == [.string("challenged")])
        for wrong in ["0", "91", "x"] {
            #expect(await installation.run("devices", "funnel", "--org", "demo", "--days", wrong).exitCode == 2)
        }
    }
}
