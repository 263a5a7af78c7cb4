import Bytes
import Postgres
import Store
import TestSupport
import Testing
import Wire

@Suite struct DeviceTests {
    private static let stamp: Int64 = 1_800_000_000_000_000
    private static let key = Enrolment.DeviceKey(
        organization: "o", appID: "app_000000000000000000000001", environment: "production",
        publicKey: [4] + Array(repeating: 1, count: 64), receipt: [1, 2])

    private func digest(_ text: String) -> [UInt8] { SHA256Digest(of: Array(text.utf8)).bytes }

    private func enrolment(_ key: String, call: String, token: String) -> Enrolment {
        Enrolment(
            keyID: digest(key), bundleID: "com.example.app", callDigest: digest(call), tokenHash: digest(token),
            evidence: .verified(Self.key))
    }

    private func enrol(
        _ enrolment: Enrolment, at stamp: Int64 = stamp, organization: String = "o", _ connection: PostgresConnection
    ) async throws -> Devices.EnrolOutcome {
        var key = Self.key
        key.organization = organization
        return try await Devices.enrol(enrolment, key, stamp: stamp, connection)
    }

    private func withOrganizations(
        _ body: @escaping @Sendable (PostgresConnection) async throws -> Void
    ) async throws {
        try await withStore { connection in
            for id in ["o", "p"] {
                _ = try await Organizations.create(
                    id: id, name: id, actor: "test", nowMicroseconds: 1, connection)
            }
            try await body(connection)
        }
    }

    @Test func theSameJobAgainFindsTheDeviceEnrolled() async throws {
        try await withOrganizations { (connection) async throws in
            let first = enrolment("key", call: "call", token: "token")
            let id = Enrolment.deviceID(organization: "o", keyID: first.keyID)
            for _ in 0..<3 {
                #expect(try await enrol(first, connection) == .enrolled(id: id, replaced: nil))
            }
            #expect(try await connection.count("devices") == 1)
        }
    }

    @Test func anEqualRepeatReplacesTheTokenForFiveMinutes() async throws {
        try await withOrganizations { (connection) async throws in
            _ = try await enrol(enrolment("key", call: "call", token: "first"), connection)
            let id = Enrolment.deviceID(organization: "o", keyID: digest("key"))
            let second = enrolment("key", call: "call", token: "second")
            #expect(
                try await enrol(second, at: Self.stamp + 1, connection)
                    == .enrolled(id: id, replaced: digest("first")))
            // The first call's job, delivered late.
            let first = enrolment("key", call: "call", token: "first")
            #expect(try await enrol(first, connection) == .superseded)
            let last = enrolment("key", call: "call", token: "third")
            #expect(
                try await enrol(last, at: Self.stamp + 300_000_000, connection)
                    == .enrolled(id: id, replaced: digest("second")))
            #expect(
                try await EndedTokens.unpublished(limit: 9, connection) == [digest("first"), digest("second")],
                "replaced tokens are told of even when the writer that replaced them dies")
            let late = enrolment("key", call: "call", token: "fourth")
            #expect(try await enrol(late, at: Self.stamp + 300_000_001, connection) == .alreadyEnrolled)
        }
    }

    @Test func aKeyEnrolsOnceByWhomeverAndNeverAgainOnceRevoked() async throws {
        try await withOrganizations { (connection) async throws in
            _ = try await enrol(enrolment("key", call: "call", token: "one"), connection)
            let other = enrolment("key", call: "another call", token: "two")
            #expect(try await enrol(other, connection) == .alreadyEnrolled)
            #expect(try await enrol(other, organization: "p", connection) == .alreadyEnrolled)
            let id = Enrolment.deviceID(organization: "o", keyID: digest("key"))
            let revocation = try await Devices.revoke(
                organization: "o", id: id, actor: "a", nowMicroseconds: 9, connection)
            #expect(revocation?.isNew == true && revocation?.tokenHash == digest("one"))
            let again = try await Devices.revoke(
                organization: "o", id: id, actor: "a", nowMicroseconds: 20, connection)
            #expect(again?.isNew == false && again?.device.revokedAt == 9)
            let equal = enrolment("key", call: "call", token: "three")
            #expect(try await enrol(equal, at: Self.stamp + 1, connection) == .alreadyEnrolled)
            #expect(
                try await Devices.revoke(organization: "p", id: id, actor: "a", nowMicroseconds: 9, connection) == nil)
            #expect(try await EndedTokens.unpublished(limit: 9, connection) == [digest("one")])
            try await EndedTokens.published([digest("one"), digest("nobody's")], connection)
            #expect(try await EndedTokens.unpublished(limit: 9, connection).isEmpty)
            #expect(try await EndedTokens.recent(since: 9, connection) == [digest("one")])
            #expect(try await EndedTokens.recent(since: 10, connection).isEmpty)
            try await EndedTokens.forget(before: 9, connection)
            #expect(try await EndedTokens.recent(since: 0, connection).count == 1)
            try await EndedTokens.forget(before: 10, connection)
            #expect(try await EndedTokens.recent(since: 0, connection).isEmpty)
        }
    }

    @Test func aTokenIsLiveWhileItsDeviceAndItsAppAre() async throws {
        try await withOrganizations { (connection) async throws in
            let outcome = try await Apps.connect(
                organization: "o", store: .appStore, bundleID: "com.example.app", teamID: "ABCDE12345", actor: "a",
                nowMicroseconds: 1, connection)
            guard case .connected(let app) = outcome else { throw PostgresError(.usage, "not connected") }
            var key = Self.key
            key.appID = app.id
            let enrolment = enrolment("key", call: "call", token: "token")
            _ = try await Devices.enrol(enrolment, key, stamp: Self.stamp, connection)
            let id = Enrolment.deviceID(organization: "o", keyID: enrolment.keyID)
            let facts = DeviceFacts(organization: "o", appID: app.id, deviceID: id)
            let asked = [digest("token"), digest("strange")]
            #expect(try await Devices.facts(tokenHashes: asked, connection) == [digest("token"): facts])
            _ = try await Apps.disconnect(
                organization: "o", app: app.id, actor: "a", nowMicroseconds: 2, connection)
            #expect(try await Devices.facts(tokenHashes: asked, connection).isEmpty)
        }
    }

    /// To the hour, so that a row changes once an hour and ends the same in any order.
    @Test func aWriteBringsItsDevicesHourForward() async throws {
        try await withOrganizations { (connection) async throws in
            _ = try await enrol(enrolment("key", call: "call", token: "token"), connection)
            let id = Enrolment.deviceID(organization: "o", keyID: digest("key"))
            func write(at stamp: Int64) -> StampedWrite {
                StampedWrite(
                    organization: "o", stamp: stamp,
                    content: .identify(
                        IdentifyWrite(
                            appUserID: "u", bundleID: "com.example.app", attributes: [],
                            proof: WriteProof(attested: true, deviceID: id))))
            }
            let hour: Int64 = 3_600_000_000
            _ = try await SDKWrites.apply([write(at: Self.stamp + 5 * hour), write(at: Self.stamp + hour)], connection)
            let seen = try await Devices.find(organization: "o", id: id, connection)?.lastSeenAt
            #expect(seen == (Self.stamp + 5 * hour) / hour * hour)
            _ = try await SDKWrites.apply([write(at: Self.stamp)], connection)
            #expect(try await Devices.find(organization: "o", id: id, connection)?.lastSeenAt == seen)
        }
    }

    @Test func theFunnelOfEnrolmentsAddsUpByAppAndForgetsOldDays() async throws {
        @Sendable func count(
            _ day: Int64, _ step: EnrolmentStep, _ reason: String = "", app: String = "com.a",
            of organization: String = "demo"
        ) -> EnrolmentCount {
            EnrolmentCount(day: day, organization: organization, bundleID: app, step: step, reason: reason)
        }
        #expect(EnrolmentCount(name: count(7, .refused, "expired").name) == count(7, .refused, "expired"))
        for bad in [
            "", "*", "1|a|b|c|d", "x|demo|com.a|enrolled|", "1|demo|com a|enrolled|", "1|demo|com.a|enrolled||",
        ] {
            #expect(EnrolmentCount(name: bad) == nil, "\(bad)")
        }
        let today: Int64 = 20_000
        let now = today * 86_400_000
        try await withStore { connection in
            try await EnrolmentCounts.add([count(today - 90, .enrolled): 5], nowMilliseconds: now, connection)
            for _ in 0..<2 {
                try await EnrolmentCounts.add(
                    [
                        count(today, .attempted): 4, count(today - 1, .attempted): 3, count(today, .enrolled): 1,
                        count(today, .refused, "expired"): 1, count(today, .refused, "bad_nonce"): 2,
                        count(today, .challenged, app: "", of: ""): 9, count(today, .attempted, of: "other"): 100,
                        count(today, .attempted, app: "com.b"): 1,
                    ], nowMilliseconds: now, connection)
            }
            try await EnrolmentCounts.add([count(today, .enrolled): 0], nowMilliseconds: now + 86_400_000, connection)
            func sums(_ app: String?, _ days: Int64) async throws -> [String] {
                try await EnrolmentCounts.sums(
                    organization: "demo", bundleID: app, firstDay: today - days + 1, connection
                ).map { "\($0.what.bundleID) \($0.what.step.rawValue) \($0.what.reason) \($0.times)" }
            }
            #expect(
                try await sums("com.a", 1) == [
                    "com.a attempted  8", "com.a enrolled  2", "com.a refused bad_nonce 4",
                    "com.a refused expired 2",
                ])
            #expect(try await sums(nil, 2).contains("com.a attempted  14"))
            #expect(try await sums(nil, 2).contains("com.b attempted  2"))
            #expect(try await sums(nil, 2).contains(" challenged  18"))
            #expect(try await sums(nil, 90).contains("com.a enrolled  2"))
            // Another day's counts push the oldest out.
            try await EnrolmentCounts.add(
                [count(today + 1, .enrolled): 1], nowMilliseconds: now + 86_400_000, connection)
            #expect(try await sums(nil, 365).contains("com.a enrolled  3"))
        }
    }
}
