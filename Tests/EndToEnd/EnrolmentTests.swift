import Bytes
import EventLoop
import Foundation
import Postgres
import Redis
import RedisQueue
import Service
import Store
import TestSupport
import Testing
import Wire

/// Devices enrol over HTTP at the real processes, with a software authenticator under a root of the test's.
@Suite(.serialized) struct EnrolmentTests {
    private static let team = "ABCDE12345"

    /// A system and a device, with one connection to the ingress.
    private struct Bench {
        let system: RunningSystem
        let authenticator: TestAuthenticator
        var http: RawHTTPClient

        func post(_ path: String, _ body: String, token: String? = nil) async throws -> (status: Int, text: String) {
            let authorization = token.map { "Authorization: Bearer \($0)\r\n" } ?? ""
            let response = try await http.exchange(
                "POST /api/sdk/v1/\(path) HTTP/1.1\r\nHost: localhost\r\n\(authorization)"
                    + "Content-Length: \(body.utf8.count)\r\n\r\n\(body)")
            return (response.status, response.text)
        }

        func challenge() async throws -> String {
            let answer = try await post("attest/challenge", "")
            #expect(answer.status == 200)
            return try #require(EnrolmentTests.member("challenge", of: answer.text))
        }

        func attestation(
            _ challenge: String, key: TestPKIKey = TestPKIKey(.p256),
            _ change: (inout TestAuthenticator.Parts) -> Void = { _ in }
        ) -> TestAuthenticator.Attestation {
            authenticator.attest(
                challenge: challenge, team: EnrolmentTests.team, bundle: Workload.bundle,
                nowSeconds: SystemTime().wallMilliseconds / 1000, key: key, change)
        }

        func body(
            _ attestation: TestAuthenticator.Attestation, _ challenge: String, bundle: String = Workload.bundle
        ) -> String {
            """
            {"keyId":"\(attestation.keyIDText)","attestation":"\(attestation.objectText)",\
            "challenge":"\(challenge)","bundleId":"\(bundle)"}
            """
        }

        func enrol() async throws -> String {
            let challenge = try await challenge()
            let answer = try await post("attest", body(attestation(challenge), challenge))
            #expect(answer.status == 200, "\(answer.text)")
            return try #require(EnrolmentTests.member("deviceToken", of: answer.text))
        }

        func identify(_ user: String, token: String?, bundle: String = Workload.bundle) async throws -> Int {
            try await post("identify", #"{"appUserId":"\#(user)","bundleId":"\#(bundle)"}"#, token: token).status
        }

        /// Asks until the answer is the wanted one.
        func eventually(_ claim: String, _ condition: () async throws -> Bool) async throws {
            let end = system.loop.time.monotonicNanoseconds + 20_000_000_000
            while try await !condition() {
                guard system.loop.time.monotonicNanoseconds < end else {
                    throw RatchetProcess.Failure(description: "never came true: \(claim)\n\(system.tails)")
                }
                await system.loop.sleep(milliseconds: 20)
            }
        }

        func store<Value: Sendable>(
            _ body: @escaping @Sendable (PostgresConnection) async throws(PostgresError) -> Value
        ) async throws -> Value {
            try await system.loop.run { [system] in try await system.postgres.withConnection(body) }
        }

        func devices(_ organization: String = "demo") async throws -> [DeviceRecord] {
            try await store { connection throws(PostgresError) in
                try await Devices.list(organization: organization, connection)
            }
        }
    }

    private static func member(_ name: String, of text: String) -> String? {
        let object = try? JSONSerialization.jsonObject(with: Data(text.utf8)) as? [String: Any]
        return object?[name] as? String
    }

    private func run(
        _ layout: RunningSystem.Layout = .init(), _ body: (Bench) async throws -> Void
    ) async throws {
        let authenticator = TestAuthenticator()
        var layout = layout
        // What is asked again until it comes true must not meet a limit first, however slow the machine is.
        for limit in ["UNATTESTED", "ATTESTED", "CHALLENGE", "ATTEST"] {
            layout.environment["RATCHET_LIMIT_\(limit)_PER_MINUTE"] = "0"
        }
        let system = try await RunningSystem.start(extraRoots: authenticator.rootPEM, layout)
        do {
            let http = try await RawHTTPClient.connect(host: "127.0.0.1", port: system.port)
            try await body(Bench(system: system, authenticator: authenticator, http: http))
        } catch {
            Issue.record("\(error)\n\(system.tails)")
        }
        await system.stop()
    }

    @Test(.timeLimit(.minutes(3))) func aDeviceEnrolsAndItsWritesAreAttestedUntilItIsRevoked() async throws {
        try await run { bench in
            let token = try await bench.enrol()
            #expect(token.hasPrefix("dt_") && token.utf8.count == 46)
            #expect(try await bench.identify("user_1", token: token) == 200)
            try await bench.eventually("the customer is attested") {
                try await bench.system.customer("user_1")?.attested == true
            }
            let device = try #require(try await bench.devices().first)
            #expect(device.environment == "production" && device.revokedAt == nil)
            #expect(try await bench.identify("user_1", token: token, bundle: "com.example.other") == 400)
            #expect(try await bench.identify("user_1", token: "dt_" + String(repeating: "A", count: 43)) == 401)

            // The plain token is nowhere but here and there.
            let dump = try await Self.dump(bench.system)
            #expect(dump.contains(Hex.encode(SHA256Digest(of: Array(token.utf8)).bytes)))
            #expect(!dump.contains(token))
            #expect(!bench.system.processes.contains { $0.lines.contains { $0.contains(token) } })

            // A Redis that forgot everything costs a question more.
            try await bench.system.redis.command(["FLUSHALL"])
            try await bench.eventually("tokens live after a wipe") {
                try await bench.identify("user_2", token: token) == 200
            }

            let revoked = try await bench.store { connection throws(PostgresError) in
                try await Devices.revoke(
                    organization: "demo", id: device.id, actor: "test", nowMicroseconds: 1, connection)
            }
            #expect(revoked?.isNew == true)
            let began = bench.system.loop.time.monotonicNanoseconds
            try await bench.eventually("the token is refused") {
                try await bench.identify("user_1", token: token) == 401
            }
            let seconds = Double(bench.system.loop.time.monotonicNanoseconds - began) / 1e9
            tell("enrolment: refused \(seconds) s after the revocation")
            #expect(try await bench.identify("user_1", token: nil) == 200)
        }
    }

    /// All that Redis and Postgres hold, as text.
    private static func dump(_ system: RunningSystem) async throws -> String {
        var text = ""
        let names = try await system.redis.command(["KEYS", "*"]).elements?.compactMap(\.text) ?? []
        for name in names {
            text += name
            let value = try await system.redis.pipeline([["DUMP", .text(name)]])[0].get()
            text += String(decoding: value.bytes ?? [], as: UTF8.self)
        }
        let run = try await CommandRun.of(
            "/usr/lib/postgresql/15/bin/pg_dump", ["-n", system.schema, system.database.conninfo], [:])
        #expect(run.code == 0, "\(run.errors)")
        return text + run.output
    }

    @Test(.timeLimit(.minutes(3))) func everyPartThatIsWrongIsRefusedByItsName() async throws {
        try await run { bench in
            let wrong: [(reason: String, change: @Sendable (inout TestAuthenticator.Parts) -> Void)] = [
                ("bad_format", { $0.format = "apple" }),
                ("app_mismatch", { $0.appID = "ABCDE12345.com.example.other" }),
                ("app_mismatch", { $0.appID = "ZZZZZ99999.\(Workload.bundle)" }),
                ("bad_counter", { $0.counter = 1 }), ("bad_counter", { $0.counter = .max }),
                ("wrong_environment", { $0.environmentID = Array("appattestdevelop".utf8) }),
                ("wrong_environment", { $0.environmentID = Array(repeating: 0, count: 16) }),
                ("bad_credential_id", { $0.credentialID[31] ^= 1 }),
                ("malformed_authenticator_data", { $0.credentialID = Array($0.credentialID.prefix(16)) }),
                ("bad_public_key", { $0.coordinates[40] ^= 1 }),
                ("bad_nonce", { $0.clientDataHash[0] ^= 1 }),
                ("bad_nonce", { $0.nonceExtension = [0x04, 0x20] + Array(repeating: 7, count: 32) }),
                ("missing_nonce", { $0.nonceExtension = [] }), ("expired_chain", { $0.validity = (1, 2) }),
                ("trailing_data", { $0.trailing = [0] }),
                ("malformed_authenticator_data", { $0.extensions = [0x01] }),
            ]
            for (reason, change) in wrong {
                let challenge = try await bench.challenge()
                // A wrong hash is what an attestation over another challenge has.
                let answer = try await bench.post(
                    "attest", bench.body(bench.attestation(challenge, change), challenge))
                #expect(answer.status == 401, "\(reason): \(answer.text)")
                #expect(Self.member("error", of: answer.text) == "attestation_failed")
                #expect(answer.text.contains(reason), "\(reason): \(answer.text)")
            }
            #expect(try await bench.devices().isEmpty)
            // Under another root.
            let challenge = try await bench.challenge()
            let stranger = TestAuthenticator().attest(
                challenge: challenge, team: Self.team, bundle: Workload.bundle,
                nowSeconds: SystemTime().wallMilliseconds / 1000)
            let answer = try await bench.post("attest", bench.body(stranger, challenge))
            #expect(answer.status == 401 && answer.text.contains("untrusted_root"))
            // What iOS 27 says beside the key is no fault.
            let last = try await bench.challenge()
            let good = bench.attestation(last) { $0.extensions = [0xA1, 0x61, 0x61, 0x01] }
            #expect(try await bench.post("attest", bench.body(good, last)).status == 200)
        }
    }

    @Test(.timeLimit(.minutes(3))) func aChallengeAndAKeyAreUsedOnceAndAnEqualRepeatGetsANewToken() async throws {
        try await run { bench in
            let key = TestPKIKey(.p256)
            let challenge = try await bench.challenge()
            let call = bench.body(bench.attestation(challenge, key: key), challenge)
            let first = try await bench.post("attest", call)
            let second = try await bench.post("attest", call)
            #expect(first.status == 200 && second.status == 200, "\(first.text) \(second.text)")
            let old = try #require(Self.member("deviceToken", of: first.text))
            let new = try #require(Self.member("deviceToken", of: second.text))
            #expect(old != new)
            #expect(try await bench.identify("user_1", token: new) == 200)
            try await bench.eventually("the token of the lost answer ends") {
                try await bench.identify("user_1", token: old) == 401
            }
            #expect(try await bench.devices().count == 1)

            // Repeats at the same time, each over a connection of its own: one token is left, wherever it is tried.
            let repeated = try await bench.challenge()
            let equal = bench.body(bench.attestation(repeated), repeated)
            var connections: [RawHTTPClient] = []
            for _ in 0..<8 {
                connections.append(try await RawHTTPClient.connect(host: "127.0.0.1", port: bench.system.port))
            }
            let answers = try await withThrowingTaskGroup(of: String?.self) { group in
                for connection in connections {
                    group.addTask {
                        let response = try await connection.exchange(
                            "POST /api/sdk/v1/attest HTTP/1.1\r\nHost: x\r\n" + Self.sized(equal))
                        return response.status == 200 ? Self.member("deviceToken", of: response.text) : nil
                    }
                }
                return try await group.reduce(into: [String]()) { if let token = $1 { $0.append(token) } }
            }
            #expect(!answers.isEmpty)
            try await bench.eventually("one token is left") {
                var live: Set<String> = []
                for connection in connections {
                    for token in answers {
                        let response = try await connection.exchange(
                            "POST /api/sdk/v1/identify HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer \(token)\r\n"
                                + Self.sized(#"{"appUserId":"user_1","bundleId":"\#(Workload.bundle)"}"#))
                        if response.status == 200 { live.insert(token) }
                    }
                }
                return live.count == 1
            }
            #expect(try await bench.devices().count == 2)

            // Another call with that challenge, and that key with another challenge.
            let other = try await bench.post("attest", bench.body(bench.attestation(challenge), challenge))
            #expect(other.status == 401 && Self.member("error", of: other.text) == "challenge_failed")
            let next = try await bench.challenge()
            let again = try await bench.post("attest", bench.body(bench.attestation(next, key: key), next))
            #expect(again.status == 401 && again.text.contains("already_enrolled"))
            #expect(try await bench.identify("user_1", token: new) == 200)

            // A challenge is used up by a failed call too.
            let wasted = try await bench.challenge()
            let failed = try await bench.post(
                "attest", bench.body(bench.attestation(wasted) { $0.counter = 9 }, wasted))
            let late = try await bench.post("attest", bench.body(bench.attestation(wasted), wasted))
            #expect(failed.status == 401 && late.status == 401)
            #expect(Self.member("error", of: late.text) == "challenge_failed")

            // One that nobody gave out, and one whose proof was bent. Not in its last character, of which some spellings
            // are no base64url and another error.
            let kept = next.dropLast(2)
            for forged in ["AAAA", kept.dropLast() + (kept.hasSuffix("A") ? "B" : "A") + next.suffix(2)] {
                let answer = try await bench.post("attest", bench.body(bench.attestation(forged), forged))
                #expect(answer.status == 401 && Self.member("error", of: answer.text) == "challenge_failed")
            }
        }
    }

    @Test(.timeLimit(.minutes(3))) func whoseAppItIsMustBeKnownAndWithoutAVerifierTheAnswerIsToComeBack() async throws {
        try await run { bench in
            let challenge = try await bench.challenge()
            let attestation = bench.attestation(challenge)
            let unknown = try await bench.post(
                "attest", bench.body(attestation, challenge, bundle: "com.example.unknown"))
            #expect(unknown.status == 404 && Self.member("error", of: unknown.text) == "app_not_connected")
            // The challenge is spent, for all but the equal repeat.
            let other = try await bench.post("attest", bench.body(bench.attestation(challenge), challenge))
            #expect(other.status == 401 && Self.member("error", of: other.text) == "challenge_failed")
            _ = await bench.system.verifier.stop()
            let away = try await bench.post("attest", bench.body(attestation, challenge))
            #expect(away.status == 503)
            try await bench.system.verifier.start()
            try await bench.eventually("the equal repeat enrols") {
                try await bench.post("attest", bench.body(attestation, challenge)).status == 200
            }

            // Another organization's app of another team is told apart by what Apple attests.
            try await bench.store { connection throws(PostgresError) in
                for (id, team) in [("other", "ZZZZZ99999"), ("third", Self.team)] {
                    _ = try await Organizations.create(
                        id: id, name: id, actor: "test", nowMicroseconds: 1, connection)
                    guard id == "other" else { continue }
                    _ = try await Apps.connect(
                        organization: id, store: .appStore, bundleID: Workload.bundle, teamID: team, actor: "test",
                        nowMicroseconds: 1, connection)
                }
            }
            // Once the ingress knows of it, a write without a token is nobody's.
            try await bench.eventually("the directory is published") {
                try await bench.post("identify", #"{"appUserId":"u","bundleId":"\#(Workload.bundle)"}"#).text
                    .contains(#""stored":false"#)
            }
            let token = try await bench.enrol()
            let foreign = try await bench.challenge()
            let theirs = bench.authenticator.attest(
                challenge: foreign, team: "ZZZZZ99999", bundle: Workload.bundle,
                nowSeconds: SystemTime().wallMilliseconds / 1000)
            #expect(try await bench.post("attest", bench.body(theirs, foreign)).status == 200)
            #expect(try await bench.devices().count == 2)
            #expect(try await bench.devices("other").count == 1)
            #expect(try await bench.identify("user_7", token: token) == 200)
            try await bench.eventually("the token says whose the write is") {
                try await bench.system.customer("user_7")?.attested == true
            }

            // One of the same team is not.
            try await bench.store { connection throws(PostgresError) in
                _ = try await Apps.connect(
                    organization: "third", store: .appStore, bundleID: Workload.bundle, teamID: Self.team,
                    actor: "test", nowMicroseconds: 1, connection)
            }
            try await bench.eventually("two organizations of one team are ambiguous") {
                let next = try await bench.challenge()
                let answer = try await bench.post("attest", bench.body(bench.attestation(next), next))
                return answer.status == 409 && Self.member("error", of: answer.text) == "ambiguous_app"
            }
        }
    }

    /// sdk.md 46, 47 and 48, what the server can show of them: writes pass while enrolment fails and say why; the same
    /// key enrols once the cause is mended; a token outlives its key.
    @Test(.timeLimit(.minutes(3))) func aRefusedDeviceWritesOnAndEnrolsOnceTheCauseIsMended() async throws {
        try await run { bench in
            let key = TestPKIKey(.p256)
            func attempt() async throws -> (status: Int, text: String) {
                let challenge = try await bench.challenge()
                let made = bench.attestation(challenge, key: key) {
                    $0.environmentID = Array("appattestdevelop".utf8)
                }
                return try await bench.post("attest", bench.body(made, challenge))
            }
            for _ in 0..<3 {
                let refused = try await attempt()
                #expect(refused.status == 401 && refused.text.contains("wrong_environment"))
            }
            let write = try await bench.http.exchange(
                "POST /api/sdk/v1/identify HTTP/1.1\r\nHost: x\r\nX-RevenueHog-Unattested: enroll-failed\r\n"
                    + Self.sized(#"{"appUserId":"user_46","bundleId":"\#(Workload.bundle)"}"#))
            #expect(write.status == 200)
            try await bench.eventually("the reason is stored") {
                try await bench.system.customer("user_46")?.lastWrite.reason == "enroll-failed"
            }

            let app = try #require(
                try await bench.store { connection throws(PostgresError) in
                    try await Apps.list(organization: "demo", connection).first { $0.bundleID == Workload.bundle }?.id
                })
            try await bench.store { connection throws(PostgresError) in
                _ = try await Apps.setDevelopment(
                    organization: "demo", app: app, allowed: true, actor: "test", nowMicroseconds: 1, connection)
            }
            var token: String?
            try await bench.eventually("the same key enrols") {
                let answer = try await attempt()
                if answer.status == 200 { token = Self.member("deviceToken", of: answer.text) }
                return answer.status == 200
            }
            let old = try #require(token)
            #expect(try await bench.devices().map(\.environment) == ["development"])

            // Installed anew: the key is gone, the token is not, and a new key is a new device.
            #expect(try await bench.identify("user_48", token: old) == 200)
            let new = try await bench.enrol()
            #expect(try await bench.devices().count == 2)
            #expect(try await bench.identify("user_48", token: old) == 200)
            #expect(try await bench.identify("user_48", token: new) == 200)

            // sdk.md 78: how far each got is in the store.
            try await bench.eventually("the funnel is stored") {
                let sums = try await bench.store { connection throws(PostgresError) in
                    try await EnrolmentCounts.sums(
                        organization: "demo", bundleID: Workload.bundle, firstDay: 0, connection
                    ).map { "\($0.what.step.rawValue) \($0.what.reason) \($0.times)" }
                }
                return sums.contains("enrolled  2")
                    && sums.contains { $0.hasPrefix("refused wrong_environment") }
            }
        }
    }

    /// Tokens, challenges and the organization's limit live on partitions of their own; the primary that knew the token
    /// is killed. Part of `make cluster-test`.
    @Test(
        .enabled(if: ProcessInfo.processInfo.environment["RATCHET_CLUSTER_TEST"] != nil), .timeLimit(.minutes(5)))
    func onAClusterDevicesEnrolAndStayKnownThroughAFailover() async throws {
        let cluster = try await TestRedisCluster.start(
            TestRedis.Options(appendOnly: true, maxMemory: "512mb"), nodeTimeoutMilliseconds: 2000)
        var layout = RunningSystem.Layout()
        layout.redis = (cluster.nodes[0], cluster.address, cluster.url)
        layout.environment = [
            "RATCHET_DURABILITY": "everysec", "RATCHET_INGRESS_PORT": String(try LoopbackPort.lasting()),
        ]
        try await run(layout) { first in
            var bench = first
            var tokens: [String] = []
            for _ in 0..<8 { tokens.append(try await bench.enrol()) }
            let challenge = try await bench.challenge()
            let call = bench.body(bench.attestation(challenge), challenge)
            #expect(try await bench.post("attest", call).status == 200)
            let other = try await bench.post("attest", bench.body(bench.attestation(challenge), challenge))
            #expect(other.status == 401 && Self.member("error", of: other.text) == "challenge_failed")
            for (index, token) in tokens.enumerated() {
                #expect(try await bench.identify("user_\(index)", token: token) == 200)
            }
            // An ingress that was started anew has nothing in memory.
            await bench.system.ingress.stop()
            try await bench.system.ingress.start(untilItSays: "\"listening\"")
            bench.http = try await RawHTTPClient.connect(host: "127.0.0.1", port: bench.system.port)
            let hash = SHA256Digest(of: Array(tokens[0].utf8)).bytes
            let victim = try await cluster.primary(of: bench.system.keys.device(hash))
            await victim.stop()
            try await bench.eventually("every token is known again") {
                for token in tokens where try await bench.identify("user_9", token: token) != 200 { return false }
                return true
            }
            let oldest = try #require(try await bench.devices().last)
            _ = try await bench.store { connection throws(PostgresError) in
                try await Devices.revoke(
                    organization: "demo", id: oldest.id, actor: "test", nowMicroseconds: 1, connection)
            }
            try await bench.eventually("a revocation is told to all") {
                try await bench.identify("user_0", token: tokens[0]) == 401
            }
            #expect(try await bench.identify("user_1", token: tokens[1]) == 200)
        }
        await cluster.remove()
    }

    private static func sized(_ body: String) -> String { "Content-Length: \(body.utf8.count)\r\n\r\n\(body)" }
}
