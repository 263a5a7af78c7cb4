import EventLoop
import Foundation
import Postgres
import Store
import TestSupport
import Testing

/// A token's whole way: from the app over ingress, Redis, writer, Postgres and sweeper to Apple's answer.
@Suite(.serialized, .timeLimit(.minutes(3))) struct AdServicesWholeWayTests {
    private static let install = "1b7a2c00-0000-4000-8000-00000000000a"

    @Test func aPostedTokenIsAskedAboutUntilAppleAnswers() async throws {
        let token = "TOKEN" + String(repeating: "x+/=", count: 100)
        let apple = try FakeAdServices()
        apple.script(token, [.notYet, .broken, .notYet, .attributed(campaign: 9_007_199_254_740_993)])
        var layout = RunningSystem.Layout()
        // Five seconds last a fifth of one, the day six minutes.
        layout.environment = ["RATCHET_ADSERVICES_TIME_SCALE": "240"]
        let system = try await RunningSystem.start(extraRoots: TestPKI().rootPEM, layout)
        let sweeper = RatchetProcess(
            "ratchet-sweeper",
            environment: [
                "RATCHET_MODE": "development", "RATCHET_SECRET": String(repeating: "s", count: 32),
                "RATCHET_PG": system.conninfo, "RATCHET_PG_SCHEMA": system.schema,
                "RATCHET_RUN_DIR": system.folder + "/sweeper", "RATCHET_ADSERVICES_URL": apple.url,
                "RATCHET_ADSERVICES_TIME_SCALE": "240", "RATCHET_LOG_LEVEL": "debug",
            ])
        try await sweeper.start()
        let connection = try await RawHTTPClient.connect(host: "127.0.0.1", port: system.port)
        let body = #"{"bundleId":"\#(Workload.bundle)","installId":"\#(Self.install)","token":"\#(token)"}"#
        let response = try await connection.exchange(
            "POST /api/sdk/v1/adservices HTTP/1.1\r\nHost: a\r\nContent-Length: \(body.utf8.count)\r\n\r\n\(body)")
        #expect(response.status == 200 && response.text == #"{"ok":true}"#)
        func record() async throws -> AdServicesRecord? {
            try await system.loop.run { [system] in
                try await system.postgres.withConnection { connection throws(PostgresError) in
                    try await AdServicesTokens.list(organization: "demo", connection).first
                }
            }
        }
        try await system.eventually("the token is resolved") { try await record()?.state == .resolved }
        let found = try #require(try await record())
        #expect(found.campaign.campaignID == 9_007_199_254_740_993 && found.campaign.keywordID == nil)
        #expect(found.attempts == 3 && found.asks == 4 && apple.asks(token).count == 4)
        #expect(apple.oddities == [])
        #expect(!sweeper.lines.contains { $0.contains("TOKEN") })
        try await system.ratchet("adservices", "show", Self.install, "--org", "demo")
        #expect(await sweeper.stop() == 0)
        await system.stop()
        await apple.stop()
    }
}
