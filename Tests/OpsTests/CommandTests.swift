import EventLoop
import Jobs
import OpsCore
import Redis
import RedisQueue
import Store
import TestSupport
import Testing
import Wire

@testable import CLI

/// What each command prints, against a real Postgres and Redis.
@Suite struct CommandTests {
    @Test func migrateAppliesWhatIsMissingAndSaysSo() async throws {
        let installation = try await TestInstallation.make(migrated: false)
        let before = await installation.run("orgs", "list")
        #expect(before.exitCode == 3)
        #expect(before.errors.contains("run: ratchet migrate"))
        let needed = Migration.all.count
        let first = await installation.run("migrate")
        #expect(first.text == "the schema is at \(needed); migrations applied: \(needed)\n")
        #expect(await installation.run("migrate").text == "the schema is at \(needed); nothing to do\n")
        let again = await installation.run("migrate", "--json")
        #expect(
            again.text == """
                {
                  "applied": [],
                  "current": \(needed),
                  "needed": \(needed),
                  "fits": true
                }

                """)
    }

    @Test func organizationsAreCreatedOnceAndListed() async throws {
        let installation = try await TestInstallation.make()
        #expect(await installation.run("orgs", "list").text == "no organizations\n")
        #expect(await installation.run("orgs", "list", "--json").text == "[]\n")
        let created = await installation.run("orgs", "create", "demo", "--name", "The Demo")
        #expect(created == .init(text: "organization demo created\n"))
        let again = await installation.run("orgs", "create", "demo", "--name", "Another")
        #expect(again == .init(text: "organization demo was there already; nothing changed\n"))
        #expect(
            await installation.run("orgs", "create", "demo", "--json").text == """
                {
                  "id": "demo",
                  "name": "The Demo",
                  "createdAt": "2026-11-30T00:00:00.000Z",
                  "attestedPerMinute": null,
                  "created": false
                }

                """)
        #expect(
            await installation.run("orgs", "list").text == """
                id    name      createdAt                 attestedPerMinute
                demo  The Demo  2026-11-30T00:00:00.000Z  -

                """)
        for bad in ["Demo", "a b", "", "-a", "a'; drop table apps", String(repeating: "a", count: 64)] {
            #expect(await installation.run("orgs", "create", "--", bad).exitCode == 2, "\(bad)")
        }
        #expect(await installation.run("orgs", "create", "x", "--name=").exitCode == 2)
        let audit = try await installation.store { try await AuditLog.list(organization: "demo", $0) }
        #expect(audit.map(\.action) == ["organization.create"])
        #expect(audit.first?.actor == Operator.loginName(environment: [:]))
    }

    @Test func appsAreConnectedListedAndDisconnected() async throws {
        let installation = try await TestInstallation.make()
        _ = await installation.run("orgs", "create", "demo")
        _ = await installation.run("orgs", "create", "other")
        #expect(await installation.run("apps", "list").text == "no connected apps\n")
        let connect = ["apps", "connect", "com.example.app", "--org", "demo", "--team", "ABCDE12345"]
        #expect(await installation.run(connect) == .init(text: "app com.example.app connected to demo\n"))
        #expect(
            await installation.run(connect)
                == .init(text: "app com.example.app was connected to demo already; nothing changed\n"))
        let play = try await installation.json(
            "apps", "connect", "com.example.app", "--org", "demo", "--store", "play_store")
        #expect(play["created"] == .bool(true) && play["alsoConnectedBy"] == .list([]))
        #expect(play["store"] == .string("play_store") && play["teamId"] == .null)

        let list = try await installation.json("apps", "list", "--org", "demo")
        #expect(list.elements.map { $0["bundleId"] } == [.string("com.example.app"), .string("com.example.app")])
        #expect(list.elements.map { $0["store"]?.string } == ["app_store", "play_store"])
        #expect(list.elements.first?["createdAt"] == .string("2026-11-30T00:00:00.000Z"))
        #expect(list.elements.first?["organization"] == .string("demo"))
        let text = await installation.run("apps", "list").text.split(separator: "\n")
        #expect(text[0] == "bundleId         store       teamId      organization  id\(spaces(26))  createdAt")
        #expect(text[1].hasPrefix("com.example.app  app_store   ABCDE12345  demo          app_"))

        let stolen = await installation.run("apps", "connect", "com.example.app", "--org", "other")
        #expect(stolen.exitCode == 0 && stolen.text == "app com.example.app connected to other\n")
        #expect(stolen.errors.contains("com.example.app is also connected to demo: writes without a device token"))

        let one = await installation.run(
            "apps", "disconnect", "com.example.app", "--org", "demo", "--store", "play_store")
        #expect(one == .init(text: "app com.example.app (play_store) disconnected from demo\n"))
        #expect(try await installation.json("apps", "list", "--org", "demo").elements.count == 1)
        #expect(try await installation.json("apps", "list").elements.count == 2)
        #expect(
            await installation.run("apps", "disconnect", "com.example.app", "--org", "demo", "--store", "play_store")
                .exitCode == 4)
        #expect(await installation.run("apps", "disconnect", "com.example.app", "--org", "demo").exitCode == 0)
    }

    private func spaces(_ count: Int) -> String { String(repeating: " ", count: count) }

    @Test func whatIsBadlyPutIsRefusedAndWhatIsUnknownNotFound() async throws {
        let installation = try await TestInstallation.make()
        _ = await installation.run("orgs", "create", "demo")
        let lines: [([String], Int32)] = [
            (["apps", "connect", "com.x", "--org", "nope"], 4), (["apps", "connect", "com.x", "--org", "No"], 2),
            (["apps", "connect", "com x", "--org", "demo"], 2),
            (["apps", "connect", "com.x", "--org", "demo", "--team", "abc"], 2),
            (["apps", "connect", "com.x", "--org", "demo", "--store", "amazon"], 2),
            (["apps", "disconnect", "com.x", "--org", "demo"], 4), (["apps", "list", "--org", "nope"], 4),
            (["customers", "show", "u", "--org", "demo"], 4), (["customers", "show", "u", "--org", "nope"], 4),
            (["customers", "show", "null", "--org", "demo"], 2), (["customers", "show", "", "--org", "demo"], 2),
            (["customers", "show", "a\u{1b}b", "--org", "demo"], 2),
            (["purchases", "show", "1", "--org", "demo"], 4), (["purchases", "show", "1 2", "--org", "demo"], 2),
            (["purchases", "show", "1", "--org", "nope"], 4),
            (["purchases", "list", "--user", "u", "--org", "demo"], 4),
            (["purchases", "move", "1", "--to", "u", "--org", "demo"], 4),
            (["purchases", "move", "1", "--to", "u", "--org", "nope"], 4),
            (["config"], 0), (["version"], 0),
        ]
        for (line, code) in lines {
            let output = await installation.run(line)
            #expect(output.exitCode == code, "\(line): \(output.errors)")
            #expect(code == 0 || output.errors.split(separator: "\n").count == 1)
            let json = await installation.run(line + ["--json"])
            #expect(json.exitCode == code)
            let word: Document? = [2: .string("usage"), 4: .string("not_found")][code]
            #expect(try parsed(json.text)["error"] == word, "\(line)")
        }
    }

    @Test func aCustomerIsShownWithEverythingKnown() async throws {
        let installation = try await TestInstallation.make()
        _ = await installation.run("orgs", "create", "demo")
        try await installation.apply([
            identify(
                "$anon_1", at: stamp(1),
                attributes: [
                    ("plan", "\"pro\""), ("big", "123456789012345678901234567890"), ("exp", "1e5"), ("yes", "true"),
                ]),
            attribute("$anon_1", "2000001", at: stamp(2), facts: facts(of: "2000001")),
        ])
        let shown = await installation.run("customers", "show", "$anon_1", "--org", "demo")
        let id = try await installation.json("customers", "show", "$anon_1", "--org", "demo")["id"]?.string ?? ""
        #expect(
            shown.text == """
                appUserId     $anon_1
                id            \(id)
                organization  demo
                attributes
                  big   123456789012345678901234567890
                  exp   1e5
                  plan  "pro"
                  yes   true
                platform      ios
                osVersion     18.1
                deviceModel   iPhone17,1
                locale        de_CH
                firstSeenAt   2026-11-29T23:00:01.000Z
                lastSeenAt    2026-11-29T23:00:02.000Z
                attested      no
                verified      yes
                lastWrite
                  attested  no
                  reason    -
                  at        2026-11-29T23:00:02.000Z
                purchases
                  originalTransactionId  store      productId        environment  expiresAt                 revokedAt  verified  contested  flapping
                  2000001                app_store  com.example.pro  Production   2026-12-28T23:20:00.123Z  -          yes       no         no

                """)
        let json = try await installation.json("customers", "show", "$anon_1", "--org", "demo")
        #expect(json["attributes"]?["big"] == .json("123456789012345678901234567890"))
        #expect(json["attributes"]?["exp"] == .json("1e5"))
        #expect(json["attributes"]?["plan"] == .string("pro"))
        #expect(json["lastWrite"]?["at"] == .string("2026-11-29T23:00:02.000Z"))
        #expect(json["verified"] == .bool(true))
        #expect(json["purchases"]?.elements.first?["originalTransactionId"] == .string("2000001"))
        for key in ["appUserId", "id", "platform", "osVersion", "deviceModel", "locale", "firstSeenAt", "lastSeenAt"] {
            #expect(json[key]?.string != nil, "\(key)")
        }
        let list = await installation.run("purchases", "list", "--user", "$anon_1", "--org", "demo")
        #expect(list.text.split(separator: "\n").last?.hasPrefix("2000001  ") == true)
        #expect(
            try await installation.json("purchases", "list", "--user", "$anon_1", "--org", "demo").elements
                == json["purchases"]?.elements)
    }

    @Test func organizationsDoNotSeeEachOther() async throws {
        let installation = try await TestInstallation.make()
        for name in ["demo", "other"] { _ = await installation.run("orgs", "create", name) }
        try await installation.apply([
            attribute("u", "1", at: stamp(1)), attribute("v", "1", at: stamp(1), organization: "other"),
        ])
        #expect(try await installation.json("purchases", "show", "1", "--org", "demo")["owner"] == .string("u"))
        #expect(try await installation.json("purchases", "show", "1", "--org", "other")["owner"] == .string("v"))
        #expect(await installation.run("customers", "show", "v", "--org", "demo").exitCode == 4)
        #expect(await installation.run("purchases", "move", "1", "--to", "v", "--org", "demo").exitCode == 4)
    }

    /// cases/sdk.md 1.
    @Test func aMoveByHandUndoesAHijackAndTheHistoryShowsBoth() async throws {
        let installation = try await TestInstallation.make()
        _ = await installation.run("orgs", "create", "demo")
        try await installation.apply([
            attribute("user_42", "T1", at: stamp(1), facts: facts(of: "T1"), attested: true),
            attribute("$anon_x", "T1", at: stamp(2)),
        ])
        let taken = try await installation.json("purchases", "show", "T1", "--org", "demo")
        #expect(taken["owner"] == .string("$anon_x"))
        #expect(taken["contested"] == .bool(true) && taken["verified"] == .bool(true))
        let moved = await installation.run(
            "purchases", "move", "T1", "--to", "user_42", "--org", "demo", "--reason", "ticket 7")
        #expect(moved == .init(text: "purchase T1 moved from $anon_x to user_42\n"))
        let text = await installation.run("purchases", "show", "T1", "--org", "demo").text
        #expect(
            text == """
                originalTransactionId  T1
                store                  app_store
                organization           demo
                owner                  user_42
                productId              com.example.pro
                bundleId               com.example.app
                environment            Production
                ownership              PURCHASED
                purchasedAt            2026-11-28T21:06:40.000Z
                expiresAt              2026-12-28T23:20:00.123Z
                revokedAt              -
                appAccountToken        -
                attested               yes
                jwsVerified            yes
                verified               yes
                contested              no
                flapping               no
                firstSeenAt            2026-11-29T23:00:01.000Z
                lastSeenAt             2026-11-29T23:00:02.000Z
                history
                  from     to       at                        attested  jws  operator  contested
                  -        user_42  2026-11-29T23:00:01.000Z  yes       yes  no        no
                  user_42  $anon_x  2026-11-29T23:00:02.000Z  no        no   no        yes
                  $anon_x  user_42  2026-11-30T00:00:00.000Z  no        no   yes       no

                """)
        let history = try await installation.json("purchases", "show", "T1", "--org", "demo")["history"]?.elements ?? []
        #expect(history.map { $0["from"] } == [.null, .string("user_42"), .string("$anon_x")])
        #expect(history.map { $0["operator"] } == [.bool(false), .bool(false), .bool(true)])
        let audit = try await installation.store { try await AuditLog.list(organization: "demo", $0) }
        #expect(audit.first?.action == "purchase.move" && audit.first?.subject == "T1")
        #expect(audit.first?.actor == Operator.loginName(environment: [:]))
        #expect(audit.first?.detail.contains("ticket 7") == true)
        let confirmed = await installation.run("purchases", "move", "T1", "--to", "user_42", "--org", "demo")
        #expect(confirmed.text == "purchase T1 confirmed for user_42\n")
        let stranger = await installation.run("purchases", "move", "T1", "--to", "stranger", "--org", "demo")
        #expect(stranger.exitCode == 4)
    }

    @Test func aStoreChoosesBetweenTwoPurchasesOfOneID() async throws {
        let installation = try await TestInstallation.make()
        _ = await installation.run("orgs", "create", "demo")
        try await installation.apply([
            attribute("a", "X", at: stamp(1)), attribute("g", "X", at: stamp(2), store: .playStore),
        ])
        #expect(try await installation.json("purchases", "show", "X", "--org", "demo")["owner"] == .string("a"))
        let play = try await installation.json("purchases", "show", "X", "--org", "demo", "--store", "play_store")
        #expect(play["owner"] == .string("g") && play["store"] == .string("play_store"))
    }

    @Test func storedEscapesDoNotReachTheTerminal() async throws {
        let installation = try await TestInstallation.make()
        _ = await installation.run("orgs", "create", "demo")
        try await installation.apply([
            identify("u", at: stamp(1), attributes: [("k\u{1b}]0;x\u{7}", "\"\u{9b}31m\\u001b[2J\"")])
        ])
        try await installation.store { connection in
            try await UnresolvedBundles.add(["com\u{1b}[2J\u{9b}": 3], nowMicroseconds: 0, connection)
        }
        for line in [["customers", "show", "u", "--org", "demo"], ["apps", "unresolved"]] {
            for output in [await installation.run(line), await installation.run(line + ["--json"])] {
                #expect(
                    !output.text.unicodeScalars.contains {
                        ($0.value < 0x20 && $0 != "\n") || (0x7f...0x9f).contains($0.value)
                    }, "\(output.text.debugDescription)")
            }
        }
    }

    @Test func droppedWritesAreListedByBundle() async throws {
        let installation = try await TestInstallation.make()
        try await installation.store { connection in
            try await UnresolvedBundles.add(
                ["com.lost": 7, "com.rare": 1], nowMicroseconds: TestInstallation.now, connection)
        }
        #expect(
            await installation.run("apps", "unresolved").text == """
                bundleId  dropped  organizations  firstSeenAt               lastSeenAt
                com.lost        7              0  2026-11-30T00:00:00.000Z  2026-11-30T00:00:00.000Z
                com.rare        1              0  2026-11-30T00:00:00.000Z  2026-11-30T00:00:00.000Z

                """)
        let json = try await installation.json("apps", "unresolved")
        #expect(json.elements.first?["bundleId"] == .string("com.lost"))
        #expect(json.elements.first?["dropped"] == .json("7"))
    }

    @Test func queuesCountsWhatWaitsInEachLane() async throws {
        let installation = try await TestInstallation.make()
        #expect(
            await installation.run("queues").text == """
                lane         waiting  pending  due  parked  dead  oldestWaitingMs  paused
                verify.live        0        0    0       0     0  -                no
                verify             0        0    0       0     0  -                no
                write.live         0        0    0       0     0  -                no
                write              0        0    0       0     0  -                no

                """)
        try await fill(installation)
        let lanes = try await installation.json("queues").elements
        #expect(lanes.map { $0["lane"]?.string } == ["verify.live", "verify", "write.live", "write"])
        let write = lanes[3]
        #expect(write["waiting"] == .json("3") && write["paused"] == .bool(true))
        guard case .json(let age)? = write["oldestWaitingMs"] else {
            Issue.record("no age: \(write)")
            return
        }
        #expect(Int64(age) ?? -1 >= 0)
        for key in ["pending", "due", "parked", "dead"] { #expect(write[key] == .json("0"), "\(key)") }
        #expect(lanes[1]["waiting"] == .json("0") && lanes[1]["oldestWaitingMs"] == .null)
        #expect(lanes[1]["paused"] == .bool(false))
    }

    private func fill(_ installation: TestInstallation) async throws {
        let loop = EventLoop(name: "ops-queue")
        let keys = QueueKeys(prefix: installation.prefix, partitions: 2)
        let address = installation.redis.address
        let results = try await loop.run {
            let client = RedisClient(loop: loop, address: address, configuration: RedisClientConfiguration())
            _ = await client.waitUntilConnected(milliseconds: 10_000)
            try await QueueSeed(client: client, keys: keys).seed()
            let sink = RedisJobSink(loop: loop, client: client, keys: keys)
            var results: [AcceptResult] = []
            for user in ["a", "b", "c"] {
                results.append(
                    await sink.accept(
                        NewJob(kind: .identify, lane: .write, organization: "demo", subject: user, payload: [1])))
            }
            _ = try await client.command(["HSET", .text(keys.meta(0)), "pause:lane:write", "1"])
            await client.close()
            return results
        }
        loop.stop()
        #expect(results.allSatisfy { if case .accepted = $0 { true } else { false } })
    }

    @Test func configListsEverySettingAndHidesSecrets() async throws {
        let installation = try await TestInstallation.make()
        let secret = "the-secret-of-this-test-0123456789"
        let changed = ["RATCHET_SECRET": secret, "RATCHET_REDSI_URL": "x"]
        let output = await installation.run(["config"], environment: changed)
        #expect(output.exitCode == 0 && !output.text.contains(secret))
        #expect(output.text.hasPrefix("name "))
        #expect(output.errors == "ratchet: warning: RATCHET_REDSI_URL is no setting; did you mean RATCHET_REDIS_URL?\n")
        let json = try parsed(await installation.run(["config", "--json"], environment: changed).text)
        let secretEntry = json.elements.first { $0["name"] == .string("RATCHET_SECRET") }
        #expect(secretEntry?["value"] == .string("(hidden)") && secretEntry?["secret"] == .bool(true))
        let partitions = json.elements.first { $0["name"] == .string("RATCHET_PARTITIONS") }
        #expect(partitions?["value"] == .string("2") && partitions?["source"] == .string("environment"))
        let bad = await installation.run(["config"], environment: ["RATCHET_PARTITIONS": "3", "RATCHET_BATCH": "x"])
        #expect(bad.exitCode == 2)
        #expect(bad.errors.split(separator: "\n").count == 1)
        #expect(bad.errors.contains("RATCHET_PARTITIONS") && bad.errors.contains("RATCHET_BATCH"))
    }
}
