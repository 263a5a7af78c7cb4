import Postgres
import Store
import TestSupport
import Testing
import Wire

@Suite struct AdServicesTokenTests {
    private static let now: Int64 = 1_795_996_800_000_000
    private static let uuid = "1B7A2C00-0000-4000-8000-00000000000A"

    private func token(
        _ install: String, at stamp: Int64, _ text: String? = nil, organization: String = "o",
        bundle: String = "com.example.app"
    ) -> StampedWrite {
        SampleWrite.adServices(
            install, at: stamp, organization: organization, bundle: bundle, token: text ?? "token \(stamp)")
    }

    /// What stands for an install: `stamp token laterTokens laterAfterFailure`.
    private func row(_ connection: PostgresConnection, _ subject: String = "a") async throws -> String {
        let row = try await connection.query(
            """
            SELECT concat_ws(' ', stamp, coalesce(convert_from(sealed_token, 'UTF8'), 'erased'), later_tokens,
                later_after_failure) AS stands
            FROM adservices_tokens WHERE subject = $1
            """, [.text(subject)]
        ).first
        return try #require(row).string("stands")
    }

    private func apply(_ connection: PostgresConnection, _ writes: StampedWrite...) async throws {
        _ = try await SDKWrites.apply(writes, connection)
    }

    private func end(
        _ connection: PostgresConnection, _ subject: String = "a", _ state: String, lastStatus: Int = 200,
        more: String = "", at: Int64 = now
    ) async throws {
        try await connection.execute(
            """
            UPDATE adservices_tokens SET state = '\(state)', due_at = NULL, sealed_token = NULL, ended_at = \(at),
                last_status = \(lastStatus), lease = NULL, attempts = 1, asks = 1\(more) WHERE subject = '\(subject)'
            """)
    }

    @Test func aTokenIsStoredWithAllThatCameWithItAndIsDueFiveSecondsLater() async throws {
        try await withStore { (connection) async throws in
            let proof = WriteProof(attested: true, deviceID: "dev_1", addressHash: "0123456789abcdef")
            let write = SampleWrite.adServices(Self.uuid.lowercased(), at: Self.now, organization: "o", proof: proof)
            let report = try await SDKWrites.apply([write], connection)
            #expect(report.adServicesTokens == 1 && report.adServicesLater == 0 && report.customers == 0)
            let record = try #require(try await AdServicesTokens.list(organization: "o", connection).first)
            #expect(record.installID == Self.uuid.lowercased() && record.bundleID == "com.example.app")
            #expect(record.state == .pending && record.attempts == 0 && record.asks == 0 && record.lastStatus == nil)
            #expect(record.receivedAt == Self.now && record.nextAskAt == Self.now + 5_000_000)
            #expect(record.endedAt == nil && !record.isAsked && record.laterTokens == 0)
            #expect(record.appVersion == "2.4.0" && record.storefront == "USA" && record.environment == "Production")
            #expect(record.attested && record.device == "dev_1" && record.addressHash == "0123456789abcdef")
            let stands = try await connection.query("SELECT * FROM adservices_tokens").first
            #expect(try stands?.string("subject") == Self.uuid && stands?.string("subject_kind") == "install")
            #expect(try await connection.count("customers") == 0)
        }
    }

    @Test func theWaitForTheFirstAskIsScaled() async throws {
        try await withStore { (connection) async throws in
            _ = try await SDKWrites.apply([token("a", at: Self.now)], adServicesTimeScale: 1000, connection)
            let record = try await AdServicesTokens.list(organization: "o", connection).first
            #expect(record?.nextAskAt == Self.now + 5_000)
        }
    }

    @Test func theSmallestStampWinsWhateverTheOrderAndARepetitionCountsNothing() async throws {
        try await withStore { (connection) async throws in
            try await apply(connection, token("a", at: 20))
            try await apply(connection, token("a", at: 30))
            #expect(try await row(connection) == "20 token 20 1 0")
            try await apply(connection, token("a", at: 10))
            #expect(try await row(connection) == "10 token 10 1 0")
            for stamp in [10, 20, 30, 10] as [Int64] { try await apply(connection, token("a", at: stamp)) }
            #expect(try await row(connection) == "10 token 10 1 0")
            try await apply(connection, token("a", at: 40), token("a", at: 50), token("a", at: 40))
            #expect(try await row(connection) == "10 token 10 3 0")
            let report = try await SDKWrites.apply([token("a", at: 50), token("a", at: 10)], connection)
            #expect(report.adServicesTokens == 0 && report.adServicesLater == 0)
        }
    }

    @Test func aDisplacedTokenIsCountedOnce() async throws {
        try await withStore { (connection) async throws in
            try await apply(connection, token("a", at: 20))
            try await apply(connection, token("a", at: 10))
            #expect(try await row(connection) == "10 token 10 1 0")
            try await apply(connection, token("a", at: 20))
            #expect(try await row(connection) == "10 token 10 1 0")
            #expect(
                try await AdServicesTokens.list(organization: "o", connection).first?.nextAskAt == 5_000_010)
        }
    }

    /// A smaller stamp that comes once Apple was asked, or is being asked, changes nothing any more.
    @Test(arguments: [
        "asks = 1", "lease = decode(repeat('00', 16), 'hex')",
        "state = 'organic', due_at = NULL, sealed_token = NULL, ended_at = 1",
    ])
    func afterTheFirstAskNothingReplacesAToken(touched: String) async throws {
        try await withStore { (connection) async throws in
            try await apply(connection, token("a", at: 20))
            try await connection.execute("UPDATE adservices_tokens SET \(touched)")
            try await apply(connection, token("a", at: 10))
            let text = touched.hasPrefix("state") ? "erased" : "token 20"
            #expect(try await row(connection) == "20 \(text) 1 0")
        }
    }

    @Test func aTokenAfterAFailureIsCountedApart() async throws {
        try await withStore { (connection) async throws in
            for (subject, state) in [("a", "expired"), ("b", "invalid"), ("c", "resolved"), ("d", "organic")] {
                try await apply(connection, token(subject, at: 20))
                try await apply(connection, token(subject, at: 25))
                try await end(connection, subject, state)
                for _ in 0..<2 { try await apply(connection, token(subject, at: 30), token(subject, at: 31)) }
            }
            #expect(try await row(connection, "a") == "20 erased 3 2")
            #expect(try await row(connection, "b") == "20 erased 3 2")
            #expect(try await row(connection, "c") == "20 erased 3 0")
            #expect(try await row(connection, "d") == "20 erased 3 0")
        }
    }

    @Test func installsOfOtherAppsAndOrganizationsAndCustomersAreOthers() async throws {
        try await withStore { (connection) async throws in
            try await apply(
                connection, token("a", at: 1), token("a", at: 2, bundle: "com.example.b"),
                token("a", at: 3, organization: "p"), token("A", at: 4))
            _ = try await AdServicesTokens.accept(
                [
                    NewAdServicesToken(
                        organization: "o", bundleID: "com.example.app", subject: .customer("a"), stamp: 5,
                        sealedToken: [1], callback: "attributes")
                ], connection)
            #expect(try await connection.count("adservices_tokens") == 5)
            #expect(try await connection.count("adservices_tokens WHERE callback = 'attributes'") == 1)
            // Customers are no installs.
            #expect(try await AdServicesTokens.list(organization: "o", connection).count == 3)
        }
    }

    @Test func twoSpellingsOfAUUIDAreOneInstallAndOtherIDsAreTakenByTheByte() async throws {
        try await withStore { (connection) async throws in
            try await apply(connection, token(Self.uuid.lowercased(), at: 2), token(Self.uuid, at: 1))
            try await apply(connection, token("e\u{301}", at: 3), token("\u{e9}", at: 4))
            let installs = try await AdServicesTokens.list(organization: "o", connection).map(\.installID)
            #expect(installs.map { Array($0.utf8) } == ["\u{e9}", "e\u{301}", Self.uuid].map { Array($0.utf8) })
            #expect(try await row(connection, Self.uuid) == "1 token 1 1 0")
        }
    }

    @Test func anAttestedTokenTellsWhenItsDeviceWasLastSeen() async throws {
        try await withStore { (connection) async throws in
            _ = try await Organizations.create(id: "o", name: "o", actor: "t", nowMicroseconds: 1, connection)
            let device = "dev_000000000000000000000001"
            try await connection.execute(
                """
                INSERT INTO devices (id, organization, app, bundle_id, key_id, environment, public_key, receipt,
                    call_digest, token_hash, token_stamp, enrolled_at, last_seen_at)
                VALUES ('\(device)', 'o', 'app_1', 'b', decode(repeat('00', 32), 'hex'), 'production',
                    decode(repeat('00', 65), 'hex'), '', decode(repeat('00', 32), 'hex'),
                    decode(repeat('00', 32), 'hex'), 1, 1, 1)
                """)
            let proof = WriteProof(attested: true, deviceID: device)
            try await apply(
                connection, SampleWrite.adServices("a", at: Self.now + 7, organization: "o", proof: proof))
            #expect(try await connection.count("devices WHERE last_seen_at = \(Self.now)") == 1)
        }
    }

    /// Eight writers with the same two hundred installs in any order: one row each, the smallest stamp, no deadlock.
    @Test func parallelBatchesEndInTheSmallestStampOfEachInstall() async throws {
        let store = try await TestStore.make()
        let installs = (0..<200).map { "install_\($0)" }
        try await withThrowingTaskGroup(of: Void.self) { group in
            for writer in 0..<8 {
                group.addTask {
                    try await store.withConnection { (connection) async throws in
                        var random = SeededGenerator(seed: UInt64(writer))
                        for part in 0..<4 {
                            let writes = installs.shuffled(using: &random).prefix(100).map {
                                token($0, at: Int64(1 + writer * 4 + part))
                            }
                            _ = try await SDKWrites.apply(writes, connection)
                        }
                    }
                }
            }
            try await group.waitForAll()
        }
        try await store.withConnection { (connection) async throws in
            #expect(try await connection.count("adservices_tokens") == 200)
            #expect(
                try await connection.count(
                    "adservices_tokens WHERE convert_from(sealed_token, 'UTF8') <> 'token ' || stamp") == 0)
            // No token that is left has a smaller stamp than the one that stands.
            #expect(try await connection.count("adservices_tokens WHERE later_at > 0 AND later_at < stamp") == 0)
        }
    }

    // MARK: - Reads

    /// Installs of two apps on two days, one in each state and a test install.
    private func fill(_ connection: PostgresConnection) async throws {
        let day: Int64 = 86_400_000_000
        try await apply(
            connection, token("pending", at: Self.now), token("resolved", at: Self.now + 1),
            token("organic", at: Self.now + 2), token("invalid", at: Self.now + day),
            token("expired", at: Self.now + day + 1), token("test", at: Self.now + day + 2),
            token("second", at: Self.now + day - 1, bundle: "com.example.b"), token("foreign", at: 1, organization: "p")
        )
        let campaign = """
            , org_id = 9007199254740993, campaign_id = 9223372036854775807, ad_group_id = 2, keyword_id = 3,
            claim_type = 'Click', conversion_type = 'Download', payload = '{"attribution":true}'
            """
        try await end(connection, "resolved", "resolved", more: campaign)
        try await end(connection, "second", "resolved", more: campaign.replacing("= 3", with: "= NULL"))
        try await end(
            connection, "test", "test",
            more: ", campaign_id = 1234567890, org_id = 1234567890, claim_type = 'Click'")
        try await end(connection, "organic", "organic")
        try await end(connection, "invalid", "invalid", lastStatus: 400)
        try await end(connection, "expired", "expired", lastStatus: 404)
        try await apply(connection, token("expired", at: Self.now + 2 * day), token("test", at: Self.now + 2 * day))
    }

    @Test func installsAreListedByAppStateDayAndStatus() async throws {
        try await withStore { (connection) async throws in
            try await fill(connection)
            func list(_ filter: AdServicesFilter, limit: Int = 100) async throws -> [String] {
                try await AdServicesTokens.list(organization: "o", matching: filter, limit: limit, connection).map(
                    \.installID)
            }
            let day: Int64 = 86_400_000_000
            #expect(
                try await list(.init()) == [
                    "test", "expired", "invalid", "second", "organic", "resolved", "pending",
                ])
            #expect(try await list(.init(), limit: 2) == ["test", "expired"])
            #expect(try await list(.init(app: "com.example.b")) == ["second"])
            #expect(try await list(.init(app: "com.example")) == [])
            #expect(try await list(.init(state: .resolved)) == ["second", "resolved"])
            #expect(
                try await list(.init(received: Self.now..<Self.now + day)) == [
                    "second", "organic", "resolved", "pending",
                ])
            #expect(
                try await list(.init(received: Self.now + day..<Self.now + 2 * day, lastStatus: 404)) == ["expired"])
            _ = try await Organizations.create(id: "o", name: "o", actor: "t", nowMicroseconds: 1, connection)
            _ = try await Apps.connect(
                organization: "o", store: .appStore, bundleID: "com.example.b", teamID: "ABCDE12345", actor: "t",
                nowMicroseconds: 1, connection)
            let id = try #require(try await Apps.list(organization: "o", connection).first?.id)
            #expect(try await list(.init(app: id)) == ["second"])
        }
    }

    @Test func idsKeepAllTheir64Bits() async throws {
        try await withStore { (connection) async throws in
            try await fill(connection)
            let found = try await AdServicesTokens.find(organization: "o", subject: "resolved", connection)
            #expect(found.count == 1)
            #expect(found.first?.campaign.campaignID == .max)
            #expect(found.first?.campaign.organizationID == 9_007_199_254_740_993)
            #expect(found.first?.payload == #"{"attribution":true}"#)
            #expect(try await AdServicesTokens.find(organization: "p", subject: "resolved", connection).isEmpty)
            #expect(
                try await AdServicesTokens.find(
                    organization: "o", subject: "resolved", app: "com.example.b", connection
                )
                .isEmpty)
            #expect(
                try await AdServicesTokens.find(organization: "o", subject: "second", connection).map(\.bundleID)
                    == ["com.example.b"])
        }
    }

    @Test func statisticsKeepTestInstallsOutOfEveryCampaign() async throws {
        try await withStore { (connection) async throws in
            try await fill(connection)
            let statistics = try await AdServicesTokens.statistics(organization: "o", matching: .init(), connection)
            #expect(statistics.rows.reduce(0) { $0 + $1.installs } == 7)
            let day: Int64 = 86_400_000_000
            #expect(statistics.rows.map(\.day) == [1, 1, 1, 0, 0, 0, 0].map { Self.now + $0 * day })
            let expired = try #require(statistics.rows.first { $0.state == .expired })
            #expect(expired.lastStatus == 404 && expired.laterTokens == 1 && expired.laterAfterFailure == 1)
            #expect(statistics.campaigns.map(\.bundleID) == ["com.example.app", "com.example.b"])
            let campaign = try #require(statistics.campaigns.first)
            #expect(campaign.campaignID == .max && campaign.installs == 1 && campaign.clicks == 1)
            #expect(campaign.keywords == 1 && statistics.campaigns.last?.keywords == 0)
            let pending = try await AdServicesTokens.statistics(
                organization: "o", matching: .init(state: .pending), connection)
            #expect(pending.rows.count == 1 && pending.campaigns.isEmpty)
        }
    }

    // MARK: - The sweep

    @Test func aPauseStandsUntilItIsLiftedAndIsAudited() async throws {
        try await withStore { (connection) async throws in
            #expect(try await AdServicesOperations.resume(actor: "a", nowMicroseconds: 1, connection) == nil)
            #expect(
                try await AdServicesOperations.pause(
                    reason: "one", milliseconds: nil, actor: "a", nowMicroseconds: 2, connection) == nil)
            let replaced = try await AdServicesOperations.pause(
                reason: "two", milliseconds: 60_000, actor: "b", nowMicroseconds: 3, connection)
            #expect(replaced?.by == "a" && replaced?.reason == "one" && replaced?.at == 2)
            #expect(replaced?.until == nil)
            let stands = try #require(try await AdServicesOperations.pause(connection))
            let state = try await AdServicesSweep.state(now: 0, connection)
            #expect(stands.reason == "two" && stands.until == state.pausedUntil)
            let left = (stands.until ?? 0) - state.databaseTime
            #expect((1...60_000_000).contains(left), "on the clock of Postgres: \(left)")
            #expect(state.isPaused(at: state.databaseTime) && !state.isPaused(at: state.databaseTime + left))
            #expect(
                try await AdServicesOperations.resume(actor: "c", nowMicroseconds: 4, connection)?.reason == "two")
            #expect(try await AdServicesOperations.pause(connection) == nil)
            let audit = try await AuditLog.list(organization: nil, connection)
            #expect(audit.map(\.action) == ["sweep.resume", "sweep.pause", "sweep.pause"])
            #expect(audit.map(\.actor) == ["c", "b", "a"])
        }
    }

    @Test func theStatusCountsWhatIsDueAskedAndHeld() async throws {
        try await withStore { (connection) async throws in
            try await apply(
                connection, token("due", at: 1), token("later", at: Self.now), token("asked", at: 2),
                token("lapsed", at: 3), token("ended", at: 4))
            try await end(connection, "ended", "organic")
            let lease = "lease = decode(repeat('00', 16), 'hex')"
            try await connection.execute(
                """
                UPDATE adservices_tokens SET \(lease), lease_end = \(Self.now + 9) WHERE subject = 'asked';
                UPDATE adservices_tokens SET \(lease), lease_end = \(Self.now - 9) WHERE subject = 'lapsed';
                UPDATE adservices_sweep SET held_until = \(Self.now + 5), hold_reason = '429'
                """)
            let status = try await AdServicesOperations.status(nowMicroseconds: Self.now, connection)
            #expect(status.pending == 4 && status.due == 2 && status.asking == 1)
            #expect(status.oldestDueAt == 5_000_001 && status.nextDueAt == Self.now + 5_000_000)
            #expect(status.heldUntil == Self.now + 5 && status.holdReason == "429" && status.pause == nil)
            let after = try await AdServicesOperations.status(nowMicroseconds: Self.now + 5, connection)
            #expect(after.heldUntil == nil && after.holdReason == nil)
        }
    }

    @Test func aRunMakesDueWhatWaitsForItsNextRungAndNothingElse() async throws {
        try await withStore { (connection) async throws in
            let names = ["rung", "first", "asked", "burnt", "due", "ended"]
            _ = try await SDKWrites.apply(names.map { token($0, at: Self.now - 1) }, connection)
            try await apply(connection, token("foreign", at: Self.now, organization: "p"))
            try await connection.execute(
                """
                UPDATE adservices_tokens SET asks = 3, attempts = 2, due_at = \(Self.now + 60_000_000)
                    WHERE subject <> 'first';
                UPDATE adservices_tokens SET lease = decode(repeat('00', 16), 'hex') WHERE subject = 'asked';
                UPDATE adservices_tokens SET attempts = 10 WHERE subject = 'burnt';
                UPDATE adservices_tokens SET due_at = 7 WHERE subject = 'due'
                """)
            try await end(connection, "ended", "organic")
            let filter = AdServicesOperations.RunFilter(organization: "o")
            #expect(
                try await AdServicesOperations.matching(filter, nowMicroseconds: Self.now, connection) == 1)
            let moved = try await AdServicesOperations.run(
                filter, actor: "a", nowMicroseconds: Self.now, after: 0, limit: 10, connection)
            #expect(moved?.moved == 1)
            #expect(
                try await AdServicesOperations.run(
                    filter, actor: "a", nowMicroseconds: Self.now, after: 0, limit: 10, connection) == nil)
            #expect(
                try await connection.count("adservices_tokens WHERE due_at = \(Self.now) AND subject = 'rung'") == 1)
            #expect(try await connection.count("adservices_tokens WHERE due_at = \(Self.now)") == 1)
            #expect(try await connection.count("adservices_tokens WHERE attempts = 2 AND asks = 3") == 4)
            let audit = try await AuditLog.list(organization: "o", connection)
            #expect(audit.map(\.action) == ["sweep.run-now"])
        }
    }

    /// What a run looks at is what is due next, however many rows there are.
    @Test func aRunWalksTheIndexOfWhatIsDue() async throws {
        try await withStore { (connection) async throws in
            try await connection.execute(
                """
                INSERT INTO adservices_tokens (organization, bundle_id, subject_kind, subject, stamp, sealed_token,
                    due_at, environment, attested, asks, attempts)
                SELECT 'o', 'b', 'install', n::text, 1, '', \(Self.now) + n, 'Production', false, 1, 1
                FROM generate_series(1, 20000) AS n;
                ANALYZE adservices_tokens
                """)
            var after: Int64 = 0
            var moved: [Int] = []
            while let batch = try await AdServicesOperations.run(
                .init(), actor: "a", nowMicroseconds: Self.now, after: after, limit: 8_000, connection)
            {
                moved.append(batch.moved)
                after = batch.until
            }
            #expect(moved == [8_000, 8_000, 4_000])
            let rows = try await connection.query(
                """
                EXPLAIN SELECT due_at FROM adservices_tokens
                WHERE state = 'pending' AND due_at > 1 AND lease IS NULL AND asks > 0 AND attempts < 10
                ORDER BY due_at LIMIT 100 FOR UPDATE SKIP LOCKED
                """
            ).rows
            var plan = ""
            for row in rows { plan += try row.string("QUERY PLAN") + "\n" }
            #expect(plan.contains("adservices_tokens_due") && !plan.contains("Sort"), "\(plan)")
        }
    }
}
