import Foundation
import IngressCore
import Jobs
import Redis
import RedisQueue
import TestSupport
import Testing

/// Redis away, refusing or slow: 503, nothing half done, and everything goes on by itself afterwards.
@Suite(.timeLimit(.minutes(3))) struct RedisFaultTests {
    /// One write of each kind; the number makes users that no other write names.
    private func post(_ rig: IngressRig, _ number: Int) async throws -> [RawHTTPClient.Response] {
        [
            try await rig.identify(IngressRig.identifyBody("user_\(number)")),
            try await rig.attribute(IngressRig.attributeBody("user_\(number)", more: #","jws":"aaaa.bbbb.cccc""#)),
        ]
    }

    private func expectRefused(
        _ rig: IngressRig, _ number: Int, sourceLocation: SourceLocation = #_sourceLocation
    ) async throws {
        for response in try await post(rig, number) { try expectUnavailable(response, sourceLocation: sourceLocation) }
    }

    private func waitUntilTaken(_ rig: IngressRig) async throws {
        try await rig.wait("writes are still refused") {
            try await rig.identify(IngressRig.identifyBody("after")).status == 200
        }
    }

    /// Whatever happened, the counts of the queue agree with its streams: no script ran by half.
    private func expectNothingHalfDone(_ rig: IngressRig) async throws {
        var accepted: Int64 = 0
        var backlog: Int64 = 0
        for partition in 0..<rig.keys.partitions {
            for name in ["accepted:write", "accepted:verify"] {
                accepted +=
                    try await rig.command(["HGET", .text(rig.keys.stats(partition)), .text(name)]).int64 ?? 0
            }
            backlog += try await rig.command(["HGET", .text(rig.keys.backlog(partition)), "demo"]).int64 ?? 0
        }
        let jobs = try await rig.jobCount()
        #expect(accepted == jobs && backlog == jobs)
    }

    @Test func anAnswerWaitsUntilRedisHasTheWrite() async throws {
        try await IngressRig.runAlone { rig in
            rig.redis.freeze()
            let client = try await rig.connect(timeoutMilliseconds: 300)
            try await client.send(IngressRig.request(SDKRoute.identify.path, IngressRig.identifyBody()))
            await #expect(throws: RawHTTPClient.Problem.timedOut) { try await client.readResponse() }
            rig.redis.thaw()
            let response = try await Self.patiently { try await client.readResponse() }
            expectOK(response)
            #expect(try await rig.jobCount() == 1)
        }
    }

    /// Repeats a read on a client whose timeout is short.
    private static func patiently(
        _ read: () async throws -> RawHTTPClient.Response
    ) async throws -> RawHTTPClient.Response {
        for _ in 0..<60 {
            do { return try await read() } catch RawHTTPClient.Problem.timedOut { continue }
        }
        throw RawHTTPClient.Problem.timedOut
    }

    @Test func aFrozenRedisIsA503AfterThePromisedTime() async throws {
        try await IngressRig.runAlone(.init(), { $0.acceptTimeoutMilliseconds = 200 }) { rig in
            rig.redis.freeze()
            try await expectRefused(rig, 1)
            rig.redis.thaw()
            try await waitUntilTaken(rig)
            try await expectNothingHalfDone(rig)
            // A refused write may be stored all the same; sent again it is stored for sure.
            try await rig.wait("the write is still refused") {
                try await post(rig, 1).allSatisfy { $0.status == 200 }
            }
            try await expectNothingHalfDone(rig)
        }
    }

    @Test func aKilledRedisIsA503AndWhatWasAcknowledgedIsThereAfterwards() async throws {
        try await IngressRig.runAlone(.init(appendOnly: true, appendFsync: "always")) { rig in
            for number in 0..<5 { for response in try await post(rig, number) { expectOK(response) } }
            await rig.redis.stop(.killed)
            try await expectRefused(rig, 5)
            try await rig.redis.start()
            try await waitUntilTaken(rig)
            #expect(try await rig.jobs(.write).count >= 6)
            #expect(try await rig.jobs(.verify).count == 5)
            try await expectNothingHalfDone(rig)
        }
    }

    @Test func aRedisThatForgotEverythingWhenItDiedIsRefused() async throws {
        try await IngressRig.runAlone { rig in
            expectOK(try await rig.identify(IngressRig.identifyBody()))
            try await rig.redis.restart(.killed)
            try await rig.wait("the loss went unseen") { try await rig.directoryVersion() == nil }
            try await expectRefused(rig, 1)
            #expect(try await rig.command(["DBSIZE"]).int64 == 0)
            try await rig.seed()
            try await rig.publish(version: 1, [IngressRig.demo])
            try await waitUntilTaken(rig)
        }
    }

    @Test func aFullRedisIsA503() async throws {
        try await IngressRig.runAlone { rig in
            try await rig.command(["CONFIG", "SET", "maxmemory", "1"])
            try await expectRefused(rig, 1)
            #expect(try await rig.jobCount() == 0)
            // Drops and the directory go on, they are no intake.
            expectOK(try await rig.identify(IngressRig.identifyBody(bundle: "com.nobody.app")), droppedBody)
            try await rig.command(["CONFIG", "SET", "maxmemory", "0"])
            try await waitUntilTaken(rig)
            try await expectNothingHalfDone(rig)
        }
    }

    @Test func aRedisThatCantSaveIsA503() async throws {
        try await IngressRig.runAlone { rig in
            // A folder where the dump belongs: saving fails for root too.
            let dump = "\(rig.redis.folder)/dump.rdb"
            try FileManager.default.createDirectory(atPath: dump, withIntermediateDirectories: false)
            try await rig.command(["CONFIG", "SET", "save", "3600 1000000"])
            try await save(rig, "err")
            try await expectRefused(rig, 1)
            #expect(try await rig.jobCount() == 0)
            try FileManager.default.removeItem(atPath: dump)
            try await save(rig, "ok")
            try await waitUntilTaken(rig)
            try await expectNothingHalfDone(rig)
        }
    }

    private func save(_ rig: IngressRig, _ status: String) async throws {
        try await rig.command(["BGSAVE"])
        try await rig.wait("the save did not end \(status)") {
            let info = try await rig.command(["INFO", "persistence"]).text ?? ""
            return info.contains("rdb_bgsave_in_progress:0") && info.contains("rdb_last_bgsave_status:\(status)")
        }
    }

    @Test func aRedisThatBecameAReplicaIsA503() async throws {
        try await IngressRig.runAlone { rig in
            // A primary that isn't there: what is stored stays readable, nothing can be written.
            try await rig.command(["REPLICAOF", "127.0.0.1", "1"])
            try await expectRefused(rig, 1)
            try await rig.command(["REPLICAOF", "NO", "ONE"])
            try await waitUntilTaken(rig)
            #expect(try await rig.jobs(.verify).isEmpty)
            try await expectNothingHalfDone(rig)
        }
    }

    @Test func aRedisWithTooFewReplicasIsA503() async throws {
        try await IngressRig.runAlone { rig in
            try await rig.command(["CONFIG", "SET", "min-replicas-to-write", "1"])
            try await expectRefused(rig, 1)
            #expect(try await rig.jobCount() == 0)
            try await rig.command(["CONFIG", "SET", "min-replicas-to-write", "0"])
            try await waitUntilTaken(rig)
        }
    }

    @Test func noConnectionIsLostWhileRedisComesAndGoes() async throws {
        try await IngressRig.runAlone(.init(appendOnly: true, appendFsync: "always")) { rig in
            let client = try await rig.connect()
            for number in 0..<3 {
                let up = try await client.exchange(
                    IngressRig.request(SDKRoute.identify.path, IngressRig.identifyBody("up_\(number)")))
                #expect(up.status == 200)
                await rig.redis.stop()
                try expectUnavailable(
                    try await client.exchange(
                        IngressRig.request(SDKRoute.identify.path, IngressRig.identifyBody("down_\(number)"))))
                try await rig.redis.start()
                try await waitUntilTaken(rig)
            }
        }
    }
}
