import Bytes
import EventLoop
import Foundation
import OpsCore
import Postgres
import Store
import Synchronization
import TestSupport
import Testing
import Wire

@testable import CLI

/// `ratchet adservices` and `ratchet sweep` against a real Postgres.
@Suite struct AdServicesCommandTests {
    private static let uuid = "1B7A2C00-0000-4000-8000-00000000000A"
    private static let day: Int64 = 86_400_000_000
    private static let now = TestInstallation.now

    /// Organization demo with the installs of a day ago and of today, and another organization.
    private func make() async throws -> TestInstallation {
        let installation = try await TestInstallation.make()
        for name in ["demo", "other"] { #expect(await installation.run("orgs", "create", name).exitCode == 0) }
        func token(_ install: String, _ stamp: Int64, bundle: String = "com.example.app") -> StampedWrite {
            SampleWrite.adServices(install, at: stamp, organization: "demo", bundle: bundle)
        }
        try await installation.apply([
            token(Self.uuid.lowercased(), Self.now - Self.day), token("organic", Self.now - Self.day + 1),
            token("test", Self.now - Self.day + 2), token("expired", Self.now - Self.day + 3),
            token("waiting", Self.now - 60_000_000), token("both", Self.now - 2),
            token("both", Self.now - 1, bundle: "com.example.b"),
        ])
        _ = try await installation.store { connection in
            func end(_ subject: String, _ state: String, _ status: Int, _ more: String = "") async throws {
                try await connection.execute(
                    """
                    UPDATE adservices_tokens SET state = '\(state)', due_at = NULL, sealed_token = NULL,
                        ended_at = \(Self.now), last_asked_at = \(Self.now), attempts = 3, asks = 4,
                        last_status = \(status)\(more) WHERE subject = '\(subject)'
                    """)
            }
            try await end(
                Self.uuid, "resolved", 200,
                """
                , campaign_id = 9007199254740993, ad_group_id = 542317095, org_id = 40669820, claim_type = 'Click',
                conversion_type = 'Download', clicked_at = \(Self.now - 2 * Self.day),
                payload = '{"attribution":true,"new":"\u{1b}[2J"}'
                """)
            try await end("organic", "organic", 200)
            try await end("test", "test", 200, ", campaign_id = 1234567890, keyword_id = 12323222")
            try await end("expired", "expired", 404)
            try await connection.execute(
                """
                UPDATE adservices_tokens SET attempts = 1, asks = 1, last_status = 404,
                    due_at = \(Self.now + 30_000_000) WHERE subject = 'waiting'
                """)
        }
        try await installation.apply([token("expired", Self.now), token("test", Self.now)])
        return installation
    }

    @Test func installsAreListedWithTheKeysThatScriptsRead() async throws {
        let installation = try await make()
        let list = try await installation.json("adservices", "list", "--org", "demo")
        #expect(list.elements.count == 7)
        let resolved = try #require(list.elements.first { $0["state"] == .string("resolved") })
        let wanted: [(String, Document)] = [
            ("installId", .string(Self.uuid.lowercased())), ("attempts", .json("3")), ("asks", .json("4")),
            ("lastStatus", .json("200")), ("campaignId", .string("9007199254740993")),
            ("adGroupId", .string("542317095")), ("keywordId", .null),
            ("receivedAt", .string("2026-11-29T00:00:00.000Z")), ("endedAt", .string("2026-11-30T00:00:00.000Z")),
            ("bundleId", .string("com.example.app")), ("nextAskAt", .null), ("laterTokens", .json("0")),
        ]
        for (name, value) in wanted { #expect(resolved[name] == value, "\(name)") }
        let waiting = try #require(list.elements.first { $0["installId"] == .string("waiting") })
        #expect(waiting["state"] == .string("pending") && waiting["endedAt"] == .null)
        #expect(waiting["nextAskAt"] == .string("2026-11-30T00:00:30.000Z"))
        #expect(waiting["campaignId"] == .null && waiting["lastStatus"] == .json("404"))
        let unasked = try #require(list.elements.first { $0["installId"] == .string("both") })
        #expect(unasked["lastStatus"] == .null && unasked["attempts"] == .json("0"))
        let expired = try #require(list.elements.first { $0["state"] == .string("expired") })
        #expect(expired["laterTokens"] == .json("1") && expired["laterTokensAfterFailure"] == .json("1"))
        let text = await installation.run("adservices", "list", "--org", "demo", "--state", "resolved").text
        #expect(text.contains("9007199254740993") && text.split(separator: "\n").count == 2)
        #expect(await installation.run("adservices", "list", "--org", "other").text == "no installs\n")
    }

    @Test func filtersNarrowTheListAndBadOnesAreRefused() async throws {
        let installation = try await make()
        func installs(_ flags: String...) async throws -> [String] {
            let output = await installation.run(["adservices", "list", "--org", "demo", "--json"] + flags)
            return try parsed(output.text).elements.compactMap { $0["installId"]?.string }
        }
        #expect(try await installs("--app", "com.example.b") == ["both"])
        #expect(try await installs("--state", "test") == ["test"])
        #expect(try await installs("--day", "2026-11-30").isEmpty)
        #expect(try await installs("--day", "2026-11-29").count == 7)
        #expect(try await installs("--status", "404") == ["waiting", "expired"])
        #expect(try await installs("--status", "404", "--state", "expired") == ["expired"])
        #expect(try await installs("--limit", "1") == ["both"])
        for (flags, code) in [
            (["--state", "lost"], 2), (["--day", "2026-11-31"], 2), (["--day", "today"], 2), (["--status", "99"], 2),
            (["--status", "x"], 2), (["--limit", "0"], 2), (["--day", "2026-11-30T"], 2),
        ] as [([String], Int32)] {
            let output = await installation.run(["adservices", "list", "--org", "demo"] + flags)
            #expect(output.exitCode == code && output.errors.split(separator: "\n").count == 1, "\(flags)")
        }
        #expect(await installation.run("adservices", "list", "--org", "nobody").exitCode == 4)
        #expect(await installation.run("adservices", "list").exitCode == 2)
    }

    @Test func oneInstallIsShownByAnySpellingOfItsUUID() async throws {
        let installation = try await make()
        for spelling in [Self.uuid, Self.uuid.lowercased()] {
            let shown = try await installation.json("adservices", "show", spelling, "--org", "demo")
            #expect(shown["campaignId"] == .string("9007199254740993") && shown["orgId"] == .string("40669820"))
            #expect(shown["clickedAt"] == .string("2026-11-28T00:00:00.000Z"))
            #expect(shown["payload"]?.string == "{\"attribution\":true,\"new\":\"\u{1b}[2J\"}")
            #expect(shown["appVersion"] == .string("2.4.0"))
        }
        let text = await installation.run("adservices", "show", Self.uuid, "--org", "demo").text
        #expect(!text.contains("\u{1b}"))
        #expect(await installation.run("adservices", "show", Self.uuid, "--org", "other").exitCode == 4)
        #expect(await installation.run("adservices", "show", "none", "--org", "demo").exitCode == 4)
        let several = await installation.run("adservices", "show", "both", "--org", "demo")
        #expect(several.exitCode == 2 && several.errors.contains("com.example.app, com.example.b"))
        let one = try await installation.json("adservices", "show", "both", "--org", "demo", "--app", "com.example.b")
        #expect(one["bundleId"] == .string("com.example.b"))
    }

    @Test func statisticsCountInstallsCampaignsAndWhatCameLaterWithoutTestInstalls() async throws {
        let installation = try await make()
        let stats = try await installation.json("adservices", "stats", "--org", "demo")
        #expect(stats["installs"] == .json("6") && stats["testInstalls"] == .json("1"))
        let states = stats["states"]
        for (state, count) in [("resolved", 1), ("organic", 1), ("expired", 1), ("invalid", 0), ("pending", 3)] {
            #expect(states?[state] == .json("\(count)"), "\(state)")
        }
        #expect(states?["test"] == nil)
        #expect(stats["resolvedPercent"] == .json("33.3") && stats["expiredAfter404Percent"] == .json("33.3"))
        #expect(stats["laterTokens"] == .json("1") && stats["laterTokensAfterFailure"] == .json("1"))
        let campaigns = stats["campaigns"]?.elements ?? []
        #expect(campaigns.map { $0["campaignId"] } == [.string("9007199254740993")])
        #expect(campaigns.first?["installs"] == .json("1") && campaigns.first?["clicks"] == .json("1"))
        let rows = stats["rows"]?.elements ?? []
        #expect(rows.count { $0["state"] == .string("test") } == 1)
        #expect(rows.allSatisfy { $0["day"] == .string("2026-11-29") })
        #expect(stats["from"] == .string("2026-11-01T00:00:00.000Z"))
        let today = try await installation.json("adservices", "stats", "--org", "demo", "--days", "1")
        #expect(today["installs"] == .json("0") && today["resolvedPercent"] == .null)
        let app = try await installation.json(
            "adservices", "stats", "--org", "demo", "--app", "com.example.b", "--day", "2026-11-29")
        #expect(app["installs"] == .json("1") && app["campaigns"]?.elements.isEmpty == true)
        for flags in [["--days", "0"], ["--days", "4000"], ["--day", "2026-11-29", "--days", "2"]] {
            #expect(await installation.run(["adservices", "stats", "--org", "demo"] + flags).exitCode == 2, "\(flags)")
        }
    }

    @Test func theSweepIsPausedAndResumedByHandAndTellsOfIt() async throws {
        let installation = try await make()
        let before = try await installation.json("sweep", "status")
        #expect(before["paused"] == .bool(false) && before["heldUntil"] == .null)
        #expect(before["pending"] == .json("3") && before["due"] == .json("0") && before["asking"] == .json("0"))
        #expect(before["nextDueAt"] == .string("2026-11-30T00:00:04.999Z"))
        #expect(await installation.run("sweep", "resume").text == "the sweep was not paused\n")
        #expect(await installation.run("sweep", "pause").exitCode == 2)
        let paused = await installation.run("sweep", "pause", "--reason", "a look")
        #expect(paused == .init(text: "the sweep is paused\n"))
        let again = await installation.run("sweep", "pause", "--reason", "second")
        #expect(
            again.exitCode == 0 && again.errors.contains("this replaces the pause of")
                && again.errors.contains("until it is lifted: a look"))
        let status = try await installation.json("sweep", "status")
        #expect(status["paused"] == .bool(true) && status["pauseReason"] == .string("second"))
        #expect(status["pausedAt"] == .string("2026-11-30T00:00:00.000Z"))
        let doctor = await installation.run(["doctor"], time: SystemTime()).text
        #expect(doctor.contains("no AdServices token is asked about: paused by"), "\(doctor)")
        let run = await installation.run("sweep", "run-now")
        #expect(run.exitCode == 0 && run.text == "1 tokens are due now\n" && run.errors.contains("second"))
        _ = try await installation.store { connection in
            try await connection.execute(
                "UPDATE adservices_sweep SET held_until = \(Self.now + 60_000_000), hold_reason = 'Apple answered 429'")
        }
        let resumed = await installation.run("sweep", "resume")
        #expect(resumed.text == "the sweep goes on\n")
        #expect(resumed.errors.contains("held until 2026-11-30T00:01:00.000Z: Apple answered 429"), "\(resumed)")
        let audit = try await installation.json("audit", "list")
        #expect(
            audit.elements.compactMap { $0["action"]?.string }.filter { $0.hasPrefix("sweep.") }
                == ["sweep.resume", "sweep.run-now", "sweep.pause", "sweep.pause"])
        #expect(
            !(await installation.run(["doctor"], time: SystemTime()).text.contains("no AdServices token is asked about"))
        )
    }

    @Test func aPauseEndsByItselfWhenATimeIsGiven() async throws {
        let installation = try await make()
        #expect(await installation.run("sweep", "pause", "--reason", "r", "--for", "soon").exitCode == 2)
        let paused = await installation.run("sweep", "pause", "--reason", "r", "--for", "2h")
        #expect(paused.exitCode == 0 && paused.text.hasPrefix("the sweep is paused until 2"), "\(paused)")
        let status = try await installation.json("sweep", "status")
        let until = try #require(status["pausedUntil"]?.string.flatMap { Timestamps.milliseconds(rfc3339: $0) })
        let left = until - SystemTime().wallMilliseconds
        #expect(status["paused"] == .bool(true) && (7_100_000...7_201_000).contains(left), "\(left) ms are left")
        let again = await installation.run("sweep", "pause", "--reason", "s", "--for", "1s")
        #expect(again.errors.contains("this replaces the pause of") && again.errors.contains(" until 2"), "\(again)")
        _ = try await installation.store { connection in
            try await connection.execute("UPDATE adservices_sweep SET paused_until = paused_until - 1000000")
        }
        let over = try await installation.json("sweep", "status")
        #expect(over["paused"] == .bool(false) && over["pausedUntil"] == .null && over["pauseReason"] == .null)
        #expect(await installation.run("sweep", "resume").text == "the sweep was not paused\n")
    }

    @Test func aRunIsNarrowedByOrganizationAndApp() async throws {
        let installation = try await make()
        let none = try await installation.json("sweep", "run-now", "--org", "other")
        #expect(none["moved"] == .json("0") && none["matched"] == .json("0") && none["complete"] == .bool(true))
        #expect(await installation.run("sweep", "run-now", "--org", "nobody").exitCode == 4)
        #expect(try await installation.json("sweep", "run-now", "--app", "com.example.b")["moved"] == .json("0"))
        #expect(try await installation.json("sweep", "run-now", "--org", "demo")["moved"] == .json("1"))
        let shown = try await installation.json("adservices", "show", "waiting", "--org", "demo")
        #expect(shown["nextAskAt"] == .string("2026-11-30T00:00:00.000Z") && shown["attempts"] == .json("1"))
    }

    @Test func aLongRunTellsOfItsProgressAndStopsWhenItIsAskedTo() async throws {
        let installation = try await make()
        _ = try await installation.store { connection in
            try await connection.execute(
                """
                INSERT INTO adservices_tokens (organization, bundle_id, subject_kind, subject, stamp, sealed_token,
                    due_at, environment, attested, asks, attempts)
                SELECT 'demo', 'b', 'install', n::text, 1, '', \(Self.now + 3_600_000_000) + n, 'Production',
                    false, 1, 1
                FROM generate_series(1, 5000) AS n
                """)
        }
        let time = ManualTime()
        let told = Told()
        // Asked after each batch: each takes eleven seconds.
        let session = Session(
            environment: installation.environment, time: time, progress: { told.add($0) },
            isInterrupted: {
                time.advance(milliseconds: 11_000)
                return !told.lines.isEmpty
            })
        let stopped = await CommandLineTool(session: session).run(["sweep", "run-now", "--json"])
        #expect(stopped.exitCode == 1)
        let document = try parsed(stopped.text)
        #expect(document["moved"] == .json("4000") && document["complete"] == .bool(false))
        #expect(document["matched"] == .json("5001"))
        #expect(told.lines.first?.contains("4000 of 5001") == true, "\(told.lines)")
        func audited() async throws -> [String] {
            let entries = try await installation.store { try await AuditLog.latest(limit: 10, $0) }
            return entries.filter { $0.action == "sweep.run-now" }.map(\.detail)
        }
        let moved = #"{"app": null, "moved": "2000"}"#
        #expect(try await audited() == [moved, moved], "what was not moved is not in the audit log")
        let rest = try parsed(await installation.run(["sweep", "run-now", "--json"], time: time).text)
        #expect(rest["moved"] == .json("1001"))
        #expect(try await audited() == [#"{"app": null, "moved": "1001"}"#, moved, moved])
    }
}

/// What was told, from any thread.
private final class Told: Sendable {
    private let state = Mutex<[String]>([])
    var lines: [String] { state.withLock { $0 } }
    func add(_ line: String) { state.withLock { $0.append(line) } }
}
