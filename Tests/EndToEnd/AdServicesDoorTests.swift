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

/// Tokens from the HTTP door into the table, through the real processes.
@Suite(.serialized, .timeLimit(.minutes(3))) struct AdServicesDoorTests {
    private static let install = "1B7A2C00-0000-4000-8000-00000000000A"

    private func run(_ body: (RunningSystem) async throws -> Void) async throws {
        let system = try await RunningSystem.start(extraRoots: TestPKI().rootPEM)
        do {
            try await body(system)
        } catch {
            Issue.record("\(error)\n\(system.tails)")
        }
        await system.stop()
    }

    private static func token(_ number: Int) -> String {
        "TOKEN\(String(format: "%04d", number))" + String(repeating: "x+/=", count: 100)
    }

    private static func body(_ install: String, _ number: Int) -> String {
        #"{"bundleId":"\#(Workload.bundle)","installId":"\#(install)","token":"\#(token(number))"}"#
    }

    private func post(_ system: RunningSystem, _ path: String, _ body: String) async throws {
        let connection = try await RawHTTPClient.connect(host: "127.0.0.1", port: system.port)
        let response = try await connection.exchange(
            "POST /api/sdk/v1/\(path) HTTP/1.1\r\nHost: localhost\r\nContent-Length: \(body.utf8.count)\r\n\r\n\(body)")
        #expect(response.status == 200 && response.text.hasPrefix(#"{"ok":true"#), "\(response.text)")
        if path == "adservices" { #expect(response.text == #"{"ok":true}"#) }
    }

    private func records(_ system: RunningSystem) async throws -> [AdServicesRecord] {
        try await system.loop.run { [system] in
            try await system.postgres.withConnection { connection throws(PostgresError) in
                try await AdServicesTokens.list(organization: "demo", connection)
            }
        }
    }

    private func tokens(_ system: RunningSystem) async throws -> [(install: String, token: String)] {
        let sealer = AdServicesToken.sealer(secret: Array(String(repeating: "s", count: 32).utf8))
        return try await system.loop.run { [system] in
            try await system.postgres.withConnection {
                connection throws(PostgresError) -> [(install: String, token: String)] in
                var found: [(install: String, token: String)] = []
                for row in try await connection.query("SELECT * FROM adservices_tokens ORDER BY subject").rows {
                    let subject = try row.string("subject")
                    let context = AdServicesToken.context(
                        organization: "demo", bundleID: try row.string("bundle_id"), subject: subject)
                    let text = sealer.open(try row.optionalBytes("sealed_token") ?? [], context: context)
                    found.append((subject, text.map { String(decoding: $0, as: UTF8.self) } ?? "unreadable"))
                }
                return found
            }
        }
    }

    /// Two tokens at once, then twenty: of each install one is stored, all callers hear the same.
    @Test func parallelPostsOfOneInstallStoreOneTokenAndCountTheRest() async throws {
        try await run { system in
            try await withThrowingTaskGroup(of: Void.self) { group in
                for number in 0..<20 {
                    let install = number % 2 == 0 ? Self.install : Self.install.lowercased()
                    group.addTask { try await post(system, "adservices", Self.body(install, number)) }
                }
                for number in 20..<22 {
                    group.addTask { try await post(system, "adservices", Self.body("other", number)) }
                }
                try await group.waitForAll()
            }
            try await system.eventually("all are counted") {
                try await records(system).map(\.laterTokens).sorted() == [1, 19]
            }
            let stored = try await tokens(system)
            #expect(stored.map(\.install) == [Self.install, "other"])
            #expect((0..<20).map(Self.token).contains(stored[0].token))
            #expect((20..<22).map(Self.token).contains(stored[1].token))
        }
    }

    /// Attribution is the install's: a new user on the same phone asks for nothing again.
    @Test func aResetAndAnotherUserChangeNothing() async throws {
        try await run { system in
            try await post(system, "adservices", Self.body(Self.install, 1))
            try await system.eventually("the token is stored") { try await records(system).count == 1 }
            let before = try await records(system)
            for user in ["$anon_1", "user_42", "$anon_2"] {
                try await post(
                    system, "identify",
                    #"{"bundleId":"\#(Workload.bundle)","appUserId":"\#(user)","installId":"\#(Self.install)"}"#)
            }
            try await post(system, "adservices", Self.body(Self.install.lowercased(), 2))
            try await system.eventually("the second token is counted") {
                try await records(system).first?.laterTokens == 1
            }
            try await system.waitUntilDrained()
            let after = try await records(system)
            #expect(after.count == 1 && after[0].receivedAt == before[0].receivedAt)
            #expect(after[0].nextAskAt == before[0].nextAskAt && after[0].asks == before[0].asks)
            #expect(try await tokens(system).map(\.token) == [Self.token(1)])
        }
    }

    /// From the phone's call to what an operator reads, with a server of the test's in Apple's place and a day of 86 s.
    @Test func anInstallIsShownWithTheCampaignThatAppleNamed() async throws {
        let apple = try FakeAdServices(byDefault: { _, ask in
            ask == 1 ? .notYet : .attributed(campaign: 9_007_199_254_740_993)
        })
        let scale = ["RATCHET_ADSERVICES_TIME_SCALE": "1000"]
        let system = try await RunningSystem.start(extraRoots: TestPKI().rootPEM, .init(environment: scale))
        let own = [
            "RATCHET_MODE": "development", "RATCHET_SECRET": String(repeating: "s", count: 32),
            "RATCHET_PG": system.conninfo, "RATCHET_PG_SCHEMA": system.schema, "RATCHET_REDIS_URL": system.redis.url,
            "RATCHET_KEY_PREFIX": system.keys.prefix, "RATCHET_RUN_DIR": system.folder + "/sweeper",
            "RATCHET_ADSERVICES_URL": apple.url,
        ].merging(scale) { $1 }
        let sweeper = RatchetProcess("ratchet-sweeper", environment: own)
        func ratchet(_ arguments: String...) async throws -> [String: Any] {
            let program = try RatchetProcess.binaries().appendingPathComponent("ratchet").path
            let run = try await CommandRun.of(program, arguments + ["--json"], own.merging(["PATH": "/usr/bin"]) { $1 })
            #expect(run.code == 0, "\(run.errors)")
            let json = try JSONSerialization.jsonObject(with: Data(run.output.utf8))
            return try #require(json as? [String: Any] ?? (json as? [[String: Any]])?.first)
        }
        do {
            // Paused from the start: the token waits, whatever its age.
            _ = try await ratchet("sweep", "pause", "--reason", "not yet")
            try await sweeper.start()
            try await post(system, "adservices", Self.body(Self.install, 1))
            try await system.eventually("the token is stored") { try await records(system).count == 1 }
            #expect(try await ratchet("sweep", "status")["pending"] as? Int == 1 && apple.total == 0)
            _ = try await ratchet("sweep", "resume")
            try await system.eventually("Apple answered") { try await records(system).first?.state == .resolved }
            let shown = try await ratchet("adservices", "list", "--org", "demo")
            #expect(shown["installId"] as? String == Self.install && shown["state"] as? String == "resolved")
            #expect(shown["campaignId"] as? String == "9007199254740993")
            #expect(shown["attempts"] as? Int == 2 && shown["lastStatus"] as? Int == 200)
            #expect(shown["endedAt"] is String)
            let stats = try await ratchet("adservices", "stats", "--org", "demo")
            #expect(stats["installs"] as? Int == 1 && (stats["campaigns"] as? [Any])?.count == 1)
            #expect(apple.asks(Self.token(1)).count == 2 && apple.oddities.isEmpty)
            #expect(!sweeper.lines.contains { $0.contains("TOKEN000") })
        } catch {
            Issue.record("\(error)\n\(system.tails)\n\(sweeper.lines.suffix(8))")
        }
        await sweeper.stop()
        await apple.stop()
        await system.stop()
    }

    /// Neither in memory nor in the file of Redis, not in Postgres, and in no log; not even of a job that died.
    @Test func noPlaceHoldsATokenInClear() async throws {
        try await run { system in
            _ = try await system.loop.run { [system] in
                try await system.postgres.withConnection { connection throws(PostgresError) in
                    try await connection.execute(
                        "ALTER TABLE adservices_tokens ADD CONSTRAINT unforeseen CHECK (subject <> 'refused')")
                }
            }
            for (number, install) in ["a", "b", "refused"].enumerated() {
                try await post(system, "adservices", Self.body(install, number))
            }
            // Refused ones are the likeliest to be logged.
            let connection = try await RawHTTPClient.connect(host: "127.0.0.1", port: system.port)
            let bad = #"{"bundleId":"x y","installId":"i","token":"\#(Self.token(3))"}"#
            let refused = try await connection.exchange(
                "POST /api/sdk/v1/adservices HTTP/1.1\r\nHost: localhost\r\nContent-Length: \(bad.utf8.count)\r\n\r\n\(bad)"
            )
            #expect(refused.status == 400 && !refused.text.contains("TOKEN000"))
            try await system.eventually("two are stored and one died") {
                let (records, dead) = (try await records(system).count, try await system.deadLetters())
                return records == 2 && dead == 1
            }
            try await system.eventually("the dead one was copied") {
                try await system.loop.run { [system] in
                    try await system.postgres.withConnection { connection throws(PostgresError) in
                        try await DeadLetters.count(DeadLetterFilter(), connection) == 1
                    }
                }
            }
            let folder = system.redis.folder + "/appendonlydir"
            var written = Data()
            for file in try FileManager.default.contentsOfDirectory(atPath: folder) {
                written += try Data(contentsOf: URL(fileURLWithPath: "\(folder)/\(file)"))
            }
            // The jobs themselves are there.
            #expect(written.range(of: Data("sealedToken".utf8)) != nil)
            #expect(written.range(of: Data("TOKEN000".utf8)) == nil && !system.redis.log.contains("TOKEN000"))
            // Nor as payloads hold bytes.
            let base64 = Base64.encode(Array("TOKEN0".utf8), .standard)
            #expect(written.range(of: Data(base64.utf8)) == nil)
            let dump = try await CommandRun.of(
                TestPostgres.program("pg_dump"), ["-n", system.schema, system.conninfo], ["PATH": "/usr/bin:/bin"])
            #expect(dump.code == 0 && dump.output.contains("adservices_tokens"), "\(dump.errors)")
            // Postgres prints bytes as hexadecimal digits.
            let hex = "TOKEN000".utf8.map { String($0, radix: 16) }.joined()
            #expect(!dump.output.contains("TOKEN000") && !dump.output.contains(hex))
            for process in system.processes {
                #expect(!process.lines.contains { $0.contains("TOKEN000") }, "\(process.name)")
            }
        }
    }
}
