import Postgres
import Store
import TestSupport
import Testing
import Wire

@Suite struct AdministrationTests {
    @Test func organizationsAreCreatedOnceWithAuditRow() async throws {
        try await withStore { connection in
            let created = try await Organizations.create(
                id: "demo", name: "Demo", actor: "ops", nowMicroseconds: 5, connection)
            guard case .created(let organization) = created else {
                Issue.record("not created: \(created)")
                return
            }
            #expect(organization.name == "Demo")
            let again = try await Organizations.create(
                id: "demo", name: "Other", actor: "ops", nowMicroseconds: 6, connection)
            #expect(again == .exists(organization))
            for id in ["", "Demo", "-x", "a b", "é", String(repeating: "a", count: 64)] {
                let refused = try await Organizations.create(
                    id: id, name: "x", actor: "ops", nowMicroseconds: 6, connection)
                #expect(refused == .invalid(field: "id"), "\(id)")
            }
            let unnamed = try await Organizations.create(
                id: "x", name: "", actor: "ops", nowMicroseconds: 6, connection)
            #expect(unnamed == .invalid(field: "name"))
            let list = try await Organizations.list(connection)
            #expect(list == [organization])
            let audit = try await AuditLog.list(organization: "demo", connection)
            #expect(audit.map(\.action) == ["organization.create"])
        }
    }

    @Test func theDirectoryHoldsTheAppsOfItsVersion() async throws {
        try await withStore { connection in
            let start = try await DirectorySnapshot.load(connection)
            #expect(start.apps.isEmpty)
            for id in ["a", "b"] {
                _ = try await Organizations.create(id: id, name: id, actor: "ops", nowMicroseconds: 1, connection)
            }
            func connect(_ organization: String, _ bundle: String, team: String?) async throws -> Apps.ConnectOutcome {
                try await Apps.connect(
                    organization: organization, store: .appStore, bundleID: bundle, teamID: team, actor: "ops",
                    nowMicroseconds: 2, connection)
            }
            let first = try await connect("a", "com.example.app", team: "ABCDE12345")
            guard case .connected(let app) = first else {
                Issue.record("not connected: \(first)")
                return
            }
            #expect(app.id.utf8.count == 28)
            let connected = try await DirectorySnapshot.load(connection)
            #expect(connected.version > start.version)
            #expect(connected.apps == [app])
            let version = try await DirectorySnapshot.version(connection)
            #expect(version == connected.version)
            let again = try await connect("a", "com.example.app", team: "ABCDE12345")
            #expect(again == .exists(app))
            let teamless = try await connect("a", "com.example.app", team: nil)
            let teamlessAgain = try await connect("a", "com.example.app", team: nil)
            guard case .connected(let second) = teamless else {
                Issue.record("not connected: \(teamless)")
                return
            }
            #expect(teamlessAgain == .exists(second))
            _ = try await connect("b", "com.example.app", team: "ABCDE12345")
            for (bundle, team, field) in [("-x", nil, "bundleId"), ("ok", "abc", "teamId"), ("", nil, "bundleId")] {
                let refused = try await connect("a", bundle, team: team)
                #expect(refused == .invalid(field: field))
            }
            let nowhere = try await connect("nobody", "com.example.app", team: nil)
            #expect(nowhere == .organizationNotFound)
            let byBundle = try await DirectorySnapshot.load(connection).apps.map(\.organization)
            #expect(byBundle == ["a", "a", "b"])

            let before = try await DirectorySnapshot.version(connection)
            let gone = try await Apps.disconnect(
                organization: "b", app: "com.example.app", actor: "ops", nowMicroseconds: 3, connection)
            #expect(gone.map(\.organization) == ["b"])
            let none = try await Apps.disconnect(
                organization: "b", app: app.id, actor: "ops", nowMicroseconds: 3, connection)
            #expect(none.isEmpty, "another organization's app")
            let after = try await DirectorySnapshot.version(connection)
            #expect(after > before)
            let left = try await Apps.list(organization: nil, connection)
            #expect(Set(left.map(\.id)) == [app.id, second.id])
        }
    }

    @Test func aDirectoryChangeThatIsRolledBackRaisesNothing() async throws {
        try await withStore { connection in
            let before = try await DirectorySnapshot.version(connection)
            _ = await failure { () async throws(PostgresError) in
                try await connection.transaction { () async throws(PostgresError) in
                    try await connection.execute("INSERT INTO organizations VALUES ('x', 'x', 1)")
                    throw PostgresError(.usage, "no")
                }
            }
            let after = try await DirectorySnapshot.version(connection)
            #expect(after == before)
        }
    }

    @Test func unresolvedBundlesAddUpAndStayBounded() async throws {
        try await withStore { connection in
            try await UnresolvedBundles.add(["com.real": 3], nowMicroseconds: 10, connection)
            try await UnresolvedBundles.add(["com.real": 2, "": 1, "nothing": 0], nowMicroseconds: 20, connection)
            let list = try await UnresolvedBundles.list(connection)
            #expect(
                list == [
                    UnresolvedBundle(
                        bundleID: "com.real", dropped: 5, firstSeenAt: 10, lastSeenAt: 20, organizations: 0)
                ])
            // A flood of names pushes itself out, not the app that keeps sending.
            let flood = Dictionary(uniqueKeysWithValues: (0..<1_500).map { ("com.flood\($0)", Int64(1)) })
            try await UnresolvedBundles.add(flood, nowMicroseconds: 30, connection)
            let bounded = try await UnresolvedBundles.list(connection)
            #expect(bounded.count == UnresolvedBundles.most)
            #expect(bounded.first?.bundleID == "com.real")
            _ = try await Organizations.create(id: "a", name: "a", actor: "ops", nowMicroseconds: 1, connection)
            _ = try await Apps.connect(
                organization: "a", store: .appStore, bundleID: "com.real", teamID: nil, actor: "ops",
                nowMicroseconds: 1, connection)
            let mended = try await UnresolvedBundles.list(connection).first
            #expect(mended?.organizations == 1)
        }
    }

    @Test func deadLettersAreKeptOnce() async throws {
        try await withStore { connection in
            let letter = DeadLetterRecord(
                partition: 3, stamp: 9, organization: "o", lane: "write", kind: "identify", header: [1, 0, 255],
                payload: Array("{}".utf8), reason: "permanent", error: String(repeating: "é\0", count: 2_000),
                diedAt: 10)
            let first = try await DeadLetters.insert([letter], connection)
            let second = try await DeadLetters.insert([letter], connection)
            #expect([first, second] == [1, 0])
            let kept = try await DeadLetters.list(.init(organization: "o"), connection)
            #expect(kept.count == 1)
            #expect(kept.first?.header == [1, 0, 255])
            #expect(kept.first?.payload == [] && kept.first?.payloadBytes == 2)
            #expect(kept.first?.error == String(repeating: "é", count: 512))
            let foreign = try await DeadLetters.list(.init(organization: "p"), connection)
            #expect(foreign.isEmpty)
        }
    }

    @Test func ordersStandUntilTheirTime() async throws {
        try await withStore { connection in
            let order = LaneOrderRecord(
                scope: "lane", target: "write", action: "pause", owner: "ops", reason: "vacuum", until: 100,
                createdAt: 1)
            try await LaneOrders.put(order, connection)
            try await LaneOrders.put(order, connection)
            let standing = try await LaneOrders.list(nowMicroseconds: 99, connection)
            #expect(standing == [order])
            let over = try await LaneOrders.list(nowMicroseconds: 100, connection)
            #expect(over.isEmpty)
            let removed = try await LaneOrders.remove(
                scope: "lane", target: "write", action: "pause", connection)
            let twice = try await LaneOrders.remove(scope: "lane", target: "write", action: "pause", connection)
            #expect([removed, twice] == [true, false])
        }
    }

    @Test func aChangeOfTheOrdersIsCopiedOnceAndALateCopyBringsNothingBack() async throws {
        try await withStore { connection in
            let order = LaneOrderRecord(
                scope: "organization", target: "demo", action: "pause", owner: "ops", reason: "flood", until: 100,
                createdAt: 1)
            let lifting = LaneOrderRecord(
                scope: "organization", target: "demo", action: "pause", owner: "other", reason: "", until: nil,
                createdAt: 1)
            try await LaneOrders.copy(order, lifted: false, id: "1-0", connection)
            try await LaneOrders.copy(lifting, lifted: true, id: "2-0", connection)
            // Another process that copies the same two, later.
            try await LaneOrders.copy(order, lifted: false, id: "1-0", connection)
            let standing = try await LaneOrders.list(nowMicroseconds: 1, connection)
            #expect(standing.isEmpty)
            try await LaneOrders.copy(order, lifted: false, id: "3-0", connection)
            let again = try await LaneOrders.list(nowMicroseconds: 1, connection)
            #expect(again == [order])
            let audit = try await AuditLog.list(organization: "demo", connection)
            #expect(audit.map(\.action) == ["queue.pause", "queue.resume", "queue.pause"])
            #expect(audit.map(\.actor) == ["ops", "other", "ops"])
            #expect(audit.allSatisfy { $0.subject == "organization:demo" })
            #expect(audit.first?.detail.contains("flood") == true)
        }
    }

    @Test func aSettingIsFixedByTheFirstWhoSetsIt() async throws {
        try await withStore { connection in
            let absent = try await InstallationFacts.get("partitions", connection)
            #expect(absent == nil)
            let first = try await InstallationFacts.fix("partitions", "16", connection)
            let second = try await InstallationFacts.fix("partitions", "32", connection)
            #expect([first, second] == ["16", "16"])
        }
    }
}
