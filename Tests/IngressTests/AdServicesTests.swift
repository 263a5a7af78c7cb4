import Bytes
import EventLoop
import IngressCore
import Jobs
import Redis
import RedisQueue
import TestSupport
import Testing
import Wire

@Suite(.timeLimit(.minutes(3))) struct AdServicesTests {
    private static let install = "1B7A2C00-0000-4000-8000-00000000000A"

    private func writes(_ rig: IngressRig) async throws -> [(job: IngressRig.Job, write: AdServicesWrite)] {
        try await rig.jobs(.write).map { ($0, try AdServicesWrite(payload: $0.payload)) }
    }

    private func open(_ write: AdServicesWrite, organization: String = "demo") -> String? {
        AdServicesToken.sealer(secret: Array(IngressRig.secret.utf8))
            .open(
                write.sealedToken,
                context: AdServicesToken.context(
                    organization: organization, bundleID: write.bundleID, subject: write.subject)
            ).map { String(decoding: $0, as: UTF8.self) }
    }

    @Test func aTokenGoesStraightToTheWriterSealed() async throws {
        try await IngressRig.run { rig in
            let token = IngressRig.adServicesToken
            let spaced = " \(token.prefix(7))\\n \(token.dropFirst(7)) "
            let body = IngressRig.adServicesBody(
                token: spaced, more: #","appVersion":"2.4.0","storefront":"USA","environment":"production""#)
            expectOK(try await rig.adServices(body, [("X-RevenueHog-Unattested", "pending")]), okBody)
            let (job, write) = try #require(try await writes(rig).first)
            #expect(try await rig.jobCount() == 1)
            #expect(job.header.kind == .adServices && job.header.organization == "demo")
            #expect(job.partition == rig.keys.partition(organization: "demo", subject: Self.install))
            #expect(write.bundleID == IngressRig.bundle && write.installID == Self.install)
            #expect(write.appVersion == "2.4.0" && write.storefront == "USA" && write.environment == .production)
            #expect(!write.proof.attested && write.proof.unattestedReason == "pending")
            #expect(write.proof.addressHash?.utf8.count == 16)
            #expect(open(write) == token)
            #expect(open(write, organization: "other") == nil)
            // No word of it anywhere in what Redis holds.
            #expect(!String(decoding: job.payload, as: UTF8.self).contains(token.prefix(24)))
            let keys = try await rig.command(["KEYS", .text(rig.keys.prefix + "*")]).elements ?? []
            #expect(!keys.isEmpty && keys.allSatisfy { $0.text?.contains(token.prefix(24)) == false })
        }
    }

    /// Two spellings of one UUID are one install: one partition, whose clock says which token was first, and one limit.
    @Test func aUUIDIsOneInstallWhateverTheCaseOfItsLetters() async throws {
        try await IngressRig.run({
            $0.partitions = 16
            $0.unattestedPerMinute = 1
        }) { rig in
            expectOK(try await rig.adServices(IngressRig.adServicesBody(Self.install.lowercased())), okBody)
            try expectLimited(try await rig.adServices(IngressRig.adServicesBody(Self.install)), seconds: 1...60)
            expectOK(try await rig.adServices(IngressRig.adServicesBody("other")), okBody)
            let jobs = try await writes(rig)
            let first = try #require(jobs.first { $0.write.installID == Self.install.lowercased() })
            #expect(first.job.partition == rig.keys.partition(organization: "demo", subject: Self.install))
            #expect(open(first.write) == IngressRig.adServicesToken)
        }
    }

    /// Not even that it was dropped is told: the seed's answer is the same for all.
    @Test func aTokenOfAnUnknownBundleIsDroppedWithThePlainAnswerAndCounted() async throws {
        try await IngressRig.run({
            $0.apps = [
                IngressRig.demo, IngressRig.app("demo", "com.example.both"),
                IngressRig.app("other", "com.example.both"),
            ]
        }) { rig in
            for bundle in ["com.example.none", "com.example.both"] {
                expectOK(try await rig.adServices(IngressRig.adServicesBody(bundle: bundle)), okBody)
            }
            #expect(try await rig.jobCount() == 0)
            try await rig.wait("the drops are counted") {
                try await rig.unresolved() == ["com.example.none": 1, "com.example.both": 1]
            }
        }
    }

    @Test func withoutADirectoryItIsA503AndNotLost() async throws {
        try await IngressRig.run({ $0.apps = nil }) { rig in
            try expectUnavailable(try await rig.adServices(IngressRig.adServicesBody()))
        }
    }

    @Test func theChecksComeInTheOrderOfAllWrites() async throws {
        try await IngressRig.run { rig in
            let nobody = [("Authorization", "Bearer \(IngressRig.nobodysToken)")]
            try expectError(try await rig.adServices("{", nobody), 400, "malformed_json")
            try expectError(
                try await rig.adServices(#"{"bundleId":"com.example.app","installId":"i"}"#, nobody), 400,
                "missing_field", field: "token")
            try expectError(
                try await rig.adServices(IngressRig.adServicesBody(token: "short"), nobody), 400, "invalid_field",
                field: "token")
            try expectError(try await rig.adServices(IngressRig.adServicesBody(), nobody), 401, "invalid_token")
            try expectError(
                try await rig.adServices(
                    IngressRig.adServicesBody(bundle: "com.example.none"), [("Authorization", "Basic eDp5")]), 401,
                "invalid_token")
            #expect(try await rig.jobCount() == 0)
            let counters = try await rig.counters()
            #expect(counters.answers.first { $0.key.route == .adServices && $0.key.status == 401 }?.value == 2)
        }
    }

    @Test func aDeviceTokenAttestsItAndNamesItsDevice() async throws {
        try await IngressRig.run { rig in
            let token = DeviceTokens.mint()
            let device = "dev_000000000000000000000001"
            _ = try await rig.control.loop.run {
                try await KnownDevices(client: rig.control, keys: rig.keys).remember(
                    DeviceTokens.hash(of: token),
                    DeviceFacts.encode(
                        DeviceFacts(organization: "demo", appID: IngressRig.demo.id, deviceID: device)))
            }
            let bearer = [("Authorization", "Bearer \(token)")]
            expectOK(try await rig.adServices(IngressRig.adServicesBody(), bearer), okBody)
            let write = try #require(try await writes(rig).first).write
            #expect(write.proof.attested && write.proof.deviceID == device)
            try expectError(
                try await rig.adServices(IngressRig.adServicesBody(bundle: "com.example.none"), bearer), 400,
                "bundle_mismatch", field: "bundleId")
        }
    }
}
