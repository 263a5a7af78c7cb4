import EventLoop
import IngressCore
import Jobs
import Redis
import RedisQueue
import TestSupport
import Testing
import Wire

@Suite(.timeLimit(.minutes(3))) struct DirectoryTests {
    private static let shared = "com.shared.app"
    private static let apps = [
        IngressRig.demo, IngressRig.app("demo", "com.both.app", .appStore),
        IngressRig.app("demo", "com.both.app", .playStore), IngressRig.app("demo", shared),
        IngressRig.app("acme", shared, .playStore),
    ]

    @Test(arguments: ["com.nobody.app", shared, "COM.EXAMPLE.APP", "com.example.app2"])
    func aBundleOfNobodyOrOfSeveralIsDroppedAndSaysSo(bundle: String) async throws {
        try await IngressRig.run({ $0.apps = Self.apps }) { rig in
            expectOK(try await rig.identify(IngressRig.identifyBody(bundle: bundle)), droppedBody)
            expectOK(try await rig.attribute(IngressRig.attributeBody(bundle: bundle)), droppedBody)
            #expect(try await rig.jobCount() == 0)
            #expect(try await rig.command(["KEYS", .text("\(rig.keys.prefix)rl:*")]).elements == [])
        }
    }

    @Test func anAppInBothStoresOfOneOrganizationIsOneApp() async throws {
        try await IngressRig.run({ $0.apps = Self.apps }) { rig in
            expectOK(try await rig.identify(IngressRig.identifyBody(bundle: "com.both.app")))
            for (transaction, platform, store) in [
                ("2000000123456789", "", PurchaseStore.appStore), ("token.AO-J1Oz", "", .playStore),
                ("2000000123456789", #","platform":"android""#, .playStore),
            ] {
                expectOK(
                    try await rig.attribute(
                        IngressRig.attributeBody(
                            "user_\(store)_\(platform.count)", transaction: transaction, bundle: "com.both.app",
                            more: platform)), okBody)
                let writes = try await rig.jobs(.write).compactMap { try? AttributeWrite(payload: $0.payload) }
                #expect(writes.contains { $0.store == store && $0.originalTransactionID == transaction })
            }
            #expect(try await rig.jobs(.write).allSatisfy { $0.header.organization == "demo" })
        }
    }

    @Test func droppedWritesAreCountedByBundleWithinASecond() async throws {
        let time = ManualTime()
        try await IngressRig.run({
            $0.apps = Self.apps
            $0.time = time
        }) { rig in
            for _ in 0..<3 { expectOK(try await rig.identify(IngressRig.identifyBody(bundle: "com.nobody.app"))) }
            expectOK(try await rig.attribute(IngressRig.attributeBody(bundle: Self.shared)), droppedBody)
            time.advance(milliseconds: 1000)
            try await rig.wait("the counts never reached Redis") {
                try await rig.unresolved() == ["com.nobody.app": 3, Self.shared: 1]
            }
            expectOK(try await rig.identify(IngressRig.identifyBody(bundle: "com.nobody.app")), droppedBody)
            time.advance(milliseconds: 1000)
            try await rig.wait("the next count never reached Redis") {
                try await rig.unresolved() == ["com.nobody.app": 4, Self.shared: 1]
            }
        }
    }

    @Test(arguments: ["a*b", "../../etc", "a b", "com.app\u{e9}", String(repeating: "a", count: 256)])
    func aNameThatIsNoBundleIsRefusedAndCountedNowhere(bundle: String) async throws {
        try await IngressRig.run { rig in
            try expectError(
                try await rig.identify(IngressRig.identifyBody(bundle: bundle)), 400, "invalid_field",
                field: "bundleId")
            let part = rig.parts[0]
            #expect(try await part.loop.run { part.ingress.drops.total } == 0)
        }
    }

    @Test func madeUpBundlesFillNeitherThisProcessNorRedis() async throws {
        try await IngressRig.runAlone(.init(), { $0.time = ManualTime() }) { rig in
            let part = rig.parts[0]
            let drops = part.ingress.drops
            // Nothing can be handed over, and what waits stays bounded: what comes back joins what came meanwhile.
            rig.redis.freeze()
            let flushing = try await part.loop.run {
                for number in 0..<1500 { drops.count("made.up.0.\(number)") }
                return part.loop.spawn { await drops.flush() }
            }
            // A look at the directory may hang there too.
            try await rig.wait("the counts did not leave") { try await part.loop.run { part.client.inFlight >= 1 } }
            try await part.loop.run {
                for number in 0..<1500 { drops.count("made.up.1.\(number)") }
            }
            await rig.redis.stop()
            await flushing.value
            for round in 2..<5 {
                try await part.loop.run {
                    for number in 0..<1500 { drops.count("made.up.\(round).\(number)") }
                    await drops.flush()
                }
            }
            try await rig.redis.start()
            guard let time = part.loop.time as? ManualTime else { return }
            try await rig.wait("no new connection") {
                time.advance(milliseconds: 100)
                return try await part.loop.run { part.client.isConnected }
            }
            try await part.loop.run { await drops.flush() }
            let counts = try await rig.unresolved()
            #expect(counts.values.reduce(0, +) == 7500)
            // A thousand names and the one for all others.
            #expect(counts.count <= 1001)
            // Rounds that do reach Redis are bounded there.
            for round in 5..<20 {
                try await part.loop.run {
                    for number in 0..<1000 { drops.count("made.up.\(round).\(number)") }
                    await drops.flush()
                }
            }
            #expect(try await rig.unresolved().count <= 10_001)
            #expect(try await rig.unresolved().values.reduce(0, +) == 22_500)
        }
    }

    // MARK: - Changes

    @Test func aChangeIsSeenWithinASecond() async throws {
        let time = ManualTime()
        try await IngressRig.run({ $0.time = time }) { rig in
            expectOK(try await rig.identify(IngressRig.identifyBody(bundle: "com.new.app")), droppedBody)
            try await rig.publish(version: 2, [IngressRig.demo, IngressRig.app("acme", "com.new.app")])
            time.advance(milliseconds: 1000)
            try await rig.wait("the new version was not seen") { try await rig.directoryVersion() == 2 }
            #expect(try await rig.identify(IngressRig.identifyBody(bundle: "com.new.app")).text.contains(#""id":"#))
            #expect(try await rig.onlyIdentify().job.header.organization == "acme")
            // And an app that is gone is nobody's.
            try await rig.publish(version: 3, [IngressRig.demo])
            time.advance(milliseconds: 1000)
            try await rig.wait("the third version was not seen") { try await rig.directoryVersion() == 3 }
            expectOK(try await rig.identify(IngressRig.identifyBody(bundle: "com.new.app")), droppedBody)
        }
    }

    @Test func aChangeIsSeenByTheRealClockToo() async throws {
        try await IngressRig.run { rig in
            try await rig.publish(version: 2, [IngressRig.app("acme", "com.new.app")])
            try await rig.wait("the new app was never taken") {
                try await rig.identify(IngressRig.identifyBody(bundle: "com.new.app")).text.contains(#""id":"#)
            }
        }
    }

    @Test func withoutADirectoryWritesAreRefusedNotDropped() async throws {
        try await IngressRig.run({ $0.apps = nil }) { rig in
            try expectUnavailable(try await rig.identify(IngressRig.identifyBody()))
            try expectUnavailable(try await rig.attribute(IngressRig.attributeBody(bundle: "com.nobody.app")))
            #expect(try await rig.counters().noDirectory == 2)
            #expect(try await rig.jobCount() == 0)
            // An empty one is a directory: a writer is there and has no app.
            try await rig.publish(version: 1, [])
            try await rig.wait("the first directory was never seen") {
                try await rig.identify(IngressRig.identifyBody()).text == droppedBody
            }
        }
    }

    @Test func aDirectoryOfAnotherFormChangesNothing() async throws {
        try await IngressRig.run { rig in
            for body in ["{", "{}", #"[{"organization":"acme"}]"#] {
                try await rig.command(["HSET", .text(rig.keys.directory), "version", "9", "body", .text(body)])
                let part = rig.parts[0]
                try await part.loop.run { await part.ingress.directory.look() }
                expectOK(try await rig.identify(IngressRig.identifyBody()))
            }
            try await rig.publish(version: 10, [])
            try await rig.wait("a good version after a bad one was not seen") {
                try await rig.directoryVersion() == 10
            }
        }
    }

    @Test func aDirectoryThatMayBeOldDropsNothing() async throws {
        let time = ManualTime()
        try await IngressRig.runAlone(.init(), { $0.time = time }) { rig in
            let nobodys = IngressRig.identifyBody(bundle: "com.nobody.app")
            expectOK(try await rig.identify(nobodys), droppedBody)
            rig.redis.freeze()
            time.advance(milliseconds: 2500)
            try expectUnavailable(try await rig.identify(nobodys))
            rig.redis.thaw()
            try await rig.wait("never fresh again") {
                time.advance(milliseconds: 250)
                return try await rig.identify(nobodys).text == droppedBody
            }
        }
    }

    // MARK: - A wiped Redis

    @Test func aWipedRedisRefusesUntilItIsSeededAndPublishedAnew() async throws {
        try await IngressRig.runAlone { rig in
            let known = IngressRig.identifyBody()
            let nobodys = IngressRig.identifyBody(bundle: "com.nobody.app")
            expectOK(try await rig.identify(known))
            try await rig.command(["FLUSHALL"])
            // The copy in hand may live a moment longer; the queue itself refuses from the first moment on.
            try expectUnavailable(try await rig.identify(known))
            try await rig.wait("the wipe went unseen") { try await rig.directoryVersion() == nil }
            try expectUnavailable(try await rig.identify(known))
            try expectUnavailable(try await rig.identify(nobodys))
            try expectUnavailable(try await rig.attribute(IngressRig.attributeBody()))
            #expect(try await rig.command(["DBSIZE"]).int64 == 0)
            // Each half alone is not enough.
            try await rig.seed()
            try expectUnavailable(try await rig.identify(known))
            try await rig.command(["FLUSHALL"])
            try await rig.publish(version: 1, [IngressRig.demo])
            try await rig.wait("the directory was never seen") { try await rig.directoryVersion() == 1 }
            try expectUnavailable(try await rig.identify(known))
            try await rig.seed()
            expectOK(try await rig.identify(known))
            #expect(try await rig.jobCount() == 1)
        }
    }
}
