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

/// `ratchet dead`, `jobs show` and `audit list` against a real Postgres and Redis.
@Suite struct DeadLetterCommandTests {
    /// A queue with letters as the workers bury them and the writer copies them.
    private struct Rig: Sendable {
        let installation: TestInstallation
        let keys: QueueKeys
        let loop = EventLoop(name: "dead-ops")
        let client: RedisClient

        static let payload = #"{"appUserId":"u","bundleId":"com.example.app","proof":{"attested":false}}"#

        static func make(seeded: Bool = true) async throws -> Rig {
            let rig = Rig(try await TestInstallation.make())
            try await rig.loop.run {
                _ = await rig.client.waitUntilConnected(milliseconds: 5000)
                if seeded { try await QueueSeed(client: rig.client, keys: rig.keys).seed() }
            }
            return rig
        }

        private init(_ installation: TestInstallation) {
            self.installation = installation
            keys = QueueKeys(prefix: installation.prefix, partitions: 2)
            client = RedisClient(
                loop: loop, address: installation.redis.address, configuration: RedisClientConfiguration())
        }

        func command(_ arguments: [RedisArgument]) async throws -> RedisValue {
            try await loop.run { try await client.command(arguments) }
        }

        /// - Returns: the letters' ids, in order.
        @discardableResult
        func bury(
            _ stamps: ClosedRange<Int64>, lane: Lane = .write, kind: String = "identify",
            organization: String = "demo", reason: String = "poison", error: String = "e",
            payload: String = Rig.payload
        ) async throws -> [Int64] {
            var letters: [DeadLetterRecord] = []
            for stamp in stamps {
                let partition = Int(stamp % 2)
                let header = "\(kind)|1|\(stamp)|9|\(organization)|5|0|||"
                let entry = try await command([
                    "XADD", .text(keys.dead(partition, lane)), "*", "h", .text(header), "p", .text(payload),
                    "reason", .text(reason), "text", .text(error),
                ])
                letters.append(
                    DeadLetterRecord(
                        partition: Int64(partition), stamp: stamp, organization: organization, lane: lane.name,
                        kind: kind, entry: entry.text ?? "", header: Array(header.utf8),
                        payload: Array(payload.utf8), reason: reason, error: error,
                        diedAt: TestInstallation.now))
            }
            let records = letters
            return try await installation.store { connection in
                var ids: [Int64] = []
                for record in records {
                    _ = try await DeadLetters.insert([record], connection)
                    let letters = try await DeadLetters.of(
                        partition: Int(record.partition), stamp: record.stamp, connection)
                    ids.append(letters[0].id)
                }
                return ids
            }
        }

        private func sum(_ verb: String, _ key: (Int) -> String) async throws -> Int64 {
            let first = try await command([.text(verb), .text(key(0))]).int64 ?? 0
            return first + (try await command([.text(verb), .text(key(1))]).int64 ?? 0)
        }

        func waiting(_ lane: Lane = .write) async throws -> Int64 { try await sum("XLEN") { keys.lane($0, lane) } }
        func dead(_ lane: Lane = .write) async throws -> Int64 { try await sum("XLEN") { keys.dead($0, lane) } }

        func backlog(_ organization: String = "demo") async throws -> Int64 {
            var sum: Int64 = 0
            for partition in 0..<2 {
                sum += try await command(["HGET", .text(keys.backlog(partition)), .text(organization)]).int64 ?? 0
            }
            return sum
        }

        func run(_ arguments: String...) async -> CommandLineTool.Output { await installation.run(arguments) }

        func audit() async throws -> [AuditEntry] {
            try await installation.store { try await AuditLog.latest(limit: 1000, $0) }
        }
    }

    @Test func lettersAreListedByFiltersAndShownWhole() async throws {
        let rig = try await Rig.make()
        #expect(await rig.run("dead", "list").text == "no dead letters\n")
        #expect(await rig.run("dead", "list", "--json").text == "[]\n")
        let ids = try await rig.bury(10...11, error: "bad \u{1b}[2Jtext")
        try await rig.bury(12...12, lane: .verify, kind: "attribute", organization: "other", reason: "unsupported")
        let list = await rig.run("dead", "list", "--organization", "demo", "--lane", "write")
        #expect(
            list.text == """
                id  diedAt                    lane   kind      organization  reason  payloadBytes  job
                 2  2026-11-30T00:00:00.000Z  write  identify  demo          poison            73  1-11
                 1  2026-11-30T00:00:00.000Z  write  identify  demo          poison            73  0-10

                """)
        for flags in [
            ["--org", "other"], ["--kind", "attribute"], ["--reason", "unsupported"], ["--lane", "verify"],
        ] {
            let found = try parsed(await rig.installation.run(["dead", "list", "--json"] + flags).text).elements
            #expect(found.map { $0["job"]?.string } == ["0-12"], "\(flags)")
        }
        #expect(try await rig.installation.json("dead", "list", "--limit", "1").elements.count == 1)
        let show = await rig.run("dead", "show", "\(ids[0])")
        #expect(show.text.contains(#"bad \u{1b}[2Jtext"#) && !show.text.contains("\u{1b}"))
        #expect(show.text.contains("appUserId"))
        let json = try await rig.installation.json("dead", "show", "\(ids[0])")
        #expect(json["payload"]?.string == Rig.payload && json["header"]?.string == "identify|1|10|9|demo|5|0|||")
    }

    @Test func whatIsBadlyPutOrUnknownEndsWithItsCode() async throws {
        let rig = try await Rig.make()
        try await rig.bury(1...1)
        let lines: [([String], Int32)] = [
            (["dead", "list", "--lane", "nope"], 2), (["dead", "list", "--org", "No"], 2),
            (["dead", "list", "--limit", "0"], 2), (["dead", "list", "--limit", "x"], 2),
            (["dead", "show", "x"], 2), (["dead", "show", "-1"], 2), (["dead", "show", "999"], 4),
            (["dead", "retry"], 2), (["dead", "retry", "1", "--all"], 2), (["dead", "retry", "--all=x"], 2),
            (["dead", "retry", "1", "999"], 4), (["dead", "retry", "a"], 2),
            (["dead", "edit", "1"], 2), (["dead", "edit", "1", "--payload", "/no/such/file"], 4),
            (["dead", "purge", "999", "--yes"], 4), (["audit", "list", "--org", "No"], 2),
            (["jobs", "show", "1"], 2), (["jobs", "show", "9-1"], 2), (["jobs", "show", "0-0"], 2),
            (["jobs", "show", "x-y"], 2),
        ]
        for (line, code) in lines {
            let output = await rig.installation.run(line)
            #expect(output.exitCode == code, "\(line): \(output)")
            #expect(output.text.isEmpty && output.errors.split(separator: "\n").count == 1, "\(line)")
            let json = await rig.installation.run(line + ["--json"])
            #expect(try parsed(json.text)["error"] == .string(code == 2 ? "usage" : "not_found"), "\(line)")
        }
        #expect(try await rig.waiting() == 0)
        #expect(try await rig.audit().isEmpty)
        #expect(await rig.run("dead", "retry", "--help").text.contains("[ID...] [--all] [--lane L]"))
        #expect(await rig.run("help").text.contains("dead purge"))
    }

    @Test func oneLetterIsPutBackOnceHoweverOftenItIsAsked() async throws {
        let rig = try await Rig.make()
        let ids = try await rig.bury(1...3)
        #expect(await rig.run("dead", "retry", "\(ids[1])") == .init(text: "1 put back\n"))
        #expect(try await rig.waiting() == 1)
        #expect(try await rig.dead() == 2)
        #expect(try await rig.backlog() == 1)
        #expect(await rig.run("dead", "retry", "\(ids[1])") == .init(text: "0 put back, 1 before\n"))
        #expect(try await rig.waiting() == 1)
        #expect(try await rig.backlog() == 1)
        #expect(try await rig.installation.json("dead", "list").elements.count == 2)
        let entry = try await rig.command(["XRANGE", .text(rig.keys.lane(0, .write)), "-", "+"])
        let fields = entry.elements?.first?.elements?[1].elements?.compactMap(\.text) ?? []
        let header = try #require(JobHeader(encoded: Array(fields[1].utf8)))
        #expect(header.stamp == 2 && header.attempts == 0 && header.organization == "demo")
        #expect(header.enqueuedMilliseconds == TestInstallation.now / 1000 && fields[3] == Rig.payload)
        let audit = try await rig.audit()
        #expect(audit.map(\.action) == ["dead.retry"] && audit.first?.organization == "demo")
        #expect(audit.first?.subject == "\(ids[1])" && audit.first?.actor == Operator.loginName(environment: [:]))
    }

    @Test func aThousandArePutBackAndNoneTwice() async throws {
        let rig = try await Rig.make()
        try await rig.bury(1...1000)
        try await rig.bury(1001...1005, organization: "other")
        let result = try await rig.installation.json("dead", "retry", "--all", "--org", "demo")
        #expect(result["done"] == .json("1000") && result["matched"] == .json("1000"))
        #expect(try await rig.waiting() == 1000)
        #expect(try await rig.backlog() == 1000)
        #expect(try await rig.dead() == 5)
        #expect(await rig.run("dead", "retry", "--all", "--org", "demo") == .init(text: "0 put back\n"))
        #expect(try await rig.waiting() == 1000)
        #expect(try await rig.audit().count == 2)
        for partition in 0..<2 {
            let notes = try await rig.command(["EXISTS", .text(rig.keys.redriven(partition))])
            #expect(notes.int64 == 0)
        }
    }

    @Test func aRetryThatDiedBeforePostgresKnewAddsNothingTwice() async throws {
        let rig = try await Rig.make()
        let ids = try await rig.bury(1...40)
        // As far as a command gets that is killed between the script and the commit.
        for id in ids.prefix(10) {
            let letter = try await rig.installation.store { try await DeadLetters.find(id: id, $0) }
            let found = try #require(letter)
            let header = try #require(JobHeader(encoded: found.header))
            let added = try await rig.loop.run {
                try await DeadLetterStreams(client: rig.client, keys: rig.keys).redrive(
                    [.init(entry: found.entry, header: header, payload: found.payload)], Int(found.partition), .write)
            }
            #expect(added == [true])
        }
        let edit = try await edited(rig, ids[0], Rig.payload)
        #expect(edit.exitCode == 2 && edit.errors.contains("back in its lane with its old payload"))
        #expect(await rig.run("dead", "retry", "--all") == .init(text: "30 put back, 10 before\n"))
        #expect(try await rig.waiting() == 40)
        #expect(try await rig.backlog() == 40)
    }

    @Test func twoOperatorsAtOnceAddNothingTwice() async throws {
        let rig = try await Rig.make()
        try await rig.bury(1...300)
        async let first = rig.installation.json("dead", "retry", "--all")
        async let second = rig.installation.json("dead", "retry", "--all")
        _ = try await (first, second)
        #expect(try await rig.waiting() == 300)
        #expect(try await rig.installation.json("dead", "list").elements.isEmpty)
    }

    /// The token inside opens for its app and install alone, so an edit that changes one of them would only bury it deeper.
    @Test func anEditedTokenKeepsItsAppAndInstallAndItsSeal() async throws {
        let rig = try await Rig.make()
        _ = await rig.run("orgs", "create", "demo")
        func payload(
            _ install: String = "i-1", bundle: String = "com.example.app", seal: UInt8 = 1, version: String = "2",
            attested: Bool = false
        ) -> String {
            let write = AdServicesWrite(
                bundleID: bundle, installID: install, sealedToken: Array(repeating: seal, count: 100),
                appVersion: version, proof: WriteProof(attested: attested))
            return String(decoding: write.encodePayload(), as: UTF8.self)
        }
        let id = try await rig.bury(1...1, kind: "adservices", payload: payload())[0]
        for (refused, field) in [
            (payload("i-2"), "installId"), (payload(bundle: "com.example.b"), "bundleId"),
            (payload(seal: 2), "sealedToken"), (payload(attested: true), "proof"),
            (payload().replacing("sealedToken", with: "token"), "payload"),
        ] {
            let output = try await edited(rig, id, refused)
            #expect(output.exitCode == 2 && output.errors.contains("refused: \(field)"), "\(output)")
        }
        #expect(try await rig.waiting() == 0)
        #expect(try await edited(rig, id, payload(version: "3")) == .init(text: "1 edited and put back\n"))
        let broken = try await rig.bury(3...3, kind: "adservices", payload: "{}")[0]
        #expect(try await edited(rig, broken, payload()) == .init(text: "1 edited and put back\n"))
        #expect(try await rig.waiting() == 2)
        for id in [id, broken] {
            let letter = try await rig.installation.store { try await DeadLetters.find(id: id, $0) }
            #expect(letter?.payload == [] && letter?.state == .retried, "the token is in the queue, and there alone")
        }
    }

    @Test func aLetterWhoseTokenWasErasedIsPutBackNoMore() async throws {
        let rig = try await Rig.make()
        let id = try await rig.bury(1...1, kind: "adservices")[0]
        try await rig.installation.store { try await DeadLetters.erase([id], $0) }
        let output = await rig.run("dead", "retry", "\(id)")
        #expect(output.exitCode == 1 && output.text.hasPrefix("0 put back; 1 can't be put back"), "\(output)")
        #expect(try await rig.waiting() == 0)
        #expect(try await rig.installation.json("dead", "list").elements.count == 1)
    }

    private func edited(_ rig: Rig, _ id: Int64, _ payload: String) async throws -> CommandLineTool.Output {
        let path = try temporaryFile(payload)
        defer { removeFile(path) }
        return await rig.run("dead", "edit", "\(id)", "--payload", path)
    }

    @Test func anEditIsHeldToTheRulesOfTheDoor() async throws {
        let rig = try await Rig.make()
        let id = try await rig.bury(2...2)[0]
        let bad = [
            "", "{", "[]", #"{"appUserId":"null","bundleId":"com.x","proof":{"attested":false}}"#,
            #"{"appUserId":"u","bundleId":"com.x","proof":{"attested":false},"more":1}"#,
            #"{"appUserId":"u","bundleId":"com.x"}"#,
        ]
        // Proof can't be written by hand, nor what Apple would have signed.
        let forged = [
            #"{"appUserId":"u","bundleId":"com.x","proof":{"attested":true}}"#,
            #"{"appUserId":"u","bundleId":"com.x","proof":{"attested":false,"deviceId":"dev_1"}}"#,
        ]
        for payload in bad + forged {
            let output = try await edited(rig, id, payload)
            #expect(output.exitCode == 2 && output.errors.contains("the payload is refused"), "\(payload): \(output)")
        }
        #expect(try await rig.waiting() == 0)
        #expect(try await rig.audit().isEmpty)
        let good = #"{"appUserId":"secret_user","bundleId":"com.x","proof":{"attested":false}}"#
        #expect(try await edited(rig, id, good) == .init(text: "1 edited and put back\n"))
        let entry = try await rig.command(["XRANGE", .text(rig.keys.lane(0, .write)), "-", "+"])
        #expect(entry.elements?.first?.elements?[1].elements?[3].text == good)
        let audit = try #require(try await rig.audit().first)
        #expect(audit.action == "dead.edit" && audit.detail.contains("sha256") && !audit.detail.contains("secret_user"))
        #expect(try await edited(rig, id, good).exitCode == 1)
        #expect(try await rig.waiting() == 1)
        let foreign = try await rig.bury(4...4, kind: "future")[0]
        #expect(try await edited(rig, foreign, good).errors.contains("'future' are not known"))
    }

    @Test func aPurgeSaysFirstWhatItWouldDo() async throws {
        let rig = try await Rig.make()
        let ids = try await rig.bury(1...4)
        try await rig.bury(5...6, reason: "unsupported")
        let dry = await rig.run("dead", "purge", "--reason", "poison")
        #expect(
            dry == .init(text: "4 dead letters would be thrown away; nothing was done. Add --yes to do it.\n"))
        #expect(try await rig.installation.json("dead", "purge")["matched"] == .json("6"))
        #expect(try await rig.dead() == 6)
        #expect(try await rig.audit().isEmpty)
        #expect(await rig.run("dead", "purge", "--reason", "poison", "--yes") == .init(text: "4 purged\n"))
        #expect(try await rig.dead() == 2)
        #expect(try await rig.waiting() == 0)
        #expect(try await rig.installation.json("dead", "list").elements.count == 2)
        let shown = try await rig.installation.json("dead", "show", "\(ids[0])")
        #expect(shown["state"] == .string("purged") && shown["payload"] == .string(""))
        let retry = await rig.run("dead", "retry", "\(ids[0])")
        #expect(retry.exitCode == 1 && retry.text.hasPrefix("0 put back; 1 can't be put back"))
        #expect(try await rig.audit().map(\.action) == ["dead.purge"])
    }

    @Test func aLetterWithoutAHeaderIsLeftForPurge() async throws {
        let rig = try await Rig.make()
        try await rig.bury(1...1, kind: "")
        try await rig.bury(2...2)
        let retry = await rig.run("dead", "retry", "--all")
        #expect(retry.exitCode == 1 && retry.text.hasPrefix("1 put back; 1 can't be put back"))
        #expect(await rig.run("dead", "purge", "--yes") == .init(text: "1 purged\n"))
    }

    @Test func serversThatAreAwayChangeNothing() async throws {
        let rig = try await Rig.make(seeded: false)
        try await rig.bury(1...3)
        let unseeded = await rig.run("dead", "retry", "--all")
        #expect(unseeded.exitCode == 3 && unseeded.errors.contains("not seeded"))
        let noRedis = await rig.installation.run(
            ["dead", "retry", "--all"], environment: ["RATCHET_REDIS_URL": "unix:///tmp/ratchet-no-redis.sock"],
            time: SystemTime())
        #expect(noRedis.exitCode == 3)
        for line in [["dead", "list"], ["dead", "retry", "--all"], ["dead", "purge", "--yes"], ["audit", "list"]] {
            let output = await rig.installation.run(
                line, environment: ["RATCHET_PG": "host=/tmp/ratchet-no-postgres dbname=x"], time: SystemTime())
            #expect(output.exitCode == 3 && output.errors.contains("postgres is away"), "\(line)")
        }
        #expect(try await rig.dead() == 3)
        #expect(try await rig.waiting() == 0)
        #expect(try await rig.audit().isEmpty)
        #expect(try await rig.installation.json("dead", "list").elements.count == 3)
    }

    @Test func aJobIsSaidToBeWhereItIs() async throws {
        let rig = try await Rig.make()
        _ = try await rig.command(["SET", .text(rig.keys.clock(0)), "5000000"])
        let id = try await rig.bury(2...2)[0]
        #expect(try await rig.installation.json("jobs", "show", "0-2")["state"] == .string("dead"))
        // Redis may have let go of it.
        _ = try await rig.command(["DEL", .text(rig.keys.dead(0, .write))])
        let dead = try await rig.installation.json("jobs", "show", "0-2")
        #expect(dead["state"] == .string("dead") && dead["letters"]?.elements.first?["id"] == .json("\(id)"))
        _ = await rig.run("dead", "retry", "\(id)")
        let waiting = try await rig.installation.json("jobs", "show", "0-2")
        #expect(waiting["state"] == .string("waiting") && waiting["attempts"] == .json("0"))
        _ = try await rig.command(["DEL", .text(rig.keys.lane(0, .write))])
        let ended = try await rig.installation.json("jobs", "show", "0-2")
        #expect(ended["state"] == .string("ended"))
        #expect(ended["letters"]?.elements.first?["state"] == .string("retried"))
        #expect(await rig.run("jobs", "show", "0-5000001").exitCode == 4)
    }

    /// Redis forgets a job in the step that ends it: what never was looks as what ended, and nobody may say which.
    @Test func aStampThatTheQueueHasPassedIsNotSaidToHaveBeenAJob() async throws {
        let rig = try await Rig.make()
        _ = try await rig.command(["SET", .text(rig.keys.clock(0)), "5000000"])
        let never = await rig.run("jobs", "show", "0-4")
        #expect(never.exitCode == 0 && never.text.contains("state            absent"), "\(never)")
        // A Redis that was wiped knows of no stamp at all.
        _ = try await rig.command(["DEL", .text(rig.keys.clock(0))])
        #expect(try await rig.installation.json("jobs", "show", "0-4")["state"] == .string("absent"))
        #expect(await rig.run("jobs", "show", "0-9007199254740991").exitCode == 4)
        // A letter tells that there was one.
        let id = try await rig.bury(6...6)[0]
        _ = await rig.run("dead", "purge", "--yes", "\(id)")
        #expect(try await rig.installation.json("jobs", "show", "0-6")["state"] == .string("ended"))
    }

    @Test func theAuditLogIsListedForAllAndForOne() async throws {
        let rig = try await Rig.make()
        #expect(await rig.run("audit", "list").text == "nothing was changed by hand\n")
        let ids = try await rig.bury(1...1)
        try await rig.bury(2...2, organization: "other")
        _ = await rig.run("dead", "purge", "--yes")
        let all = try await rig.installation.json("audit", "list").elements
        #expect(all.map { $0["organization"]?.string } == ["other", "demo"])
        let one = try await rig.installation.json("audit", "list", "--organization", "demo").elements
        #expect(one.count == 1 && one.first?["action"] == .string("dead.purge"))
        #expect(one.first?["subject"] == .string("\(ids[0])"))
        #expect(try await rig.installation.json("audit", "list", "--limit", "1").elements.count == 1)
    }

    @Test func progressTellsRateAndTimeLeft() {
        #expect(
            BulkProgress.line("dead retry", 500, 1000, nanoseconds: 2_000_000_000)
                == "dead retry: [##########..........] 500 of 1000, 250/s, 2 s left")
        #expect(BulkProgress.line("x", 0, 0, nanoseconds: 0).hasSuffix("] 0 of 1, 0/s"))
        // Letters may come while it runs.
        #expect(BulkProgress.line("x", 7, 5, nanoseconds: 1_000_000_000).contains("7 of 7, 7/s, 0 s left"))
    }
}
