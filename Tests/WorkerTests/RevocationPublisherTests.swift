import Bytes
import EventLoop
import Postgres
import Redis
import RedisQueue
import Service
import Store
import TestSupport
import Testing
import Wire

@testable import Writer

@Suite(.timeLimit(.minutes(2))) struct RevocationPublisherTests {
    private static let stamp: Int64 = 1_800_000_000_000_000

    private func digest(_ text: String) -> [UInt8] { SHA256Digest(of: Array(text.utf8)).bytes }

    private func enrolment(token: String) -> (Enrolment, Enrolment.DeviceKey) {
        let key = Enrolment.DeviceKey(
            organization: "demo", appID: "app_000000000000000000000001", environment: "production",
            publicKey: [4] + Array(repeating: 1, count: 64), receipt: [1])
        return (
            Enrolment(
                keyID: digest("key"), bundleID: "com.example.app", callDigest: digest("call"),
                tokenHash: digest(token), evidence: .verified(key)), key
        )
    }

    /// A token that an equal repeat replaced, and one that was revoked, are told of, whoever died meanwhile; and again for
    /// a while, in case Redis was put back to a state in which they lived.
    @Test func whatEndedIsToldAndToldAgainToARedisThatWentBack() async throws {
        let store = try await TestStore.make()
        let redis = try await TestRedis.shared()
        let keys = QueueKeys(prefix: redis.keyPrefix(), partitions: 4)
        let time = ManualTime(wallMicroseconds: Self.stamp + 10)
        let loop = EventLoop(name: "revocations", time: time)
        defer { loop.stop() }
        let configuration = try TestPostgres.shared.get().configuration(schema: store.schema)
        let clock = Self.stamp
        let (first, second) = (enrolment(token: "first"), enrolment(token: "second"))
        try await store.withConnection { connection in
            _ = try await Organizations.create(
                id: "demo", name: "Demo", actor: "test", nowMicroseconds: 1, connection)
            for (index, (enrolment, key)) in [first, second].enumerated() {
                _ = try await Devices.enrol(enrolment, key, stamp: clock + Int64(index), connection)
            }
            _ = try await Devices.revoke(
                organization: "demo", id: Enrolment.deviceID(organization: "demo", keyID: first.0.keyID),
                actor: "test", nowMicroseconds: clock + 2, connection)
        }
        let facts = DeviceFacts.encode(
            DeviceFacts(organization: "demo", appID: first.1.appID, deviceID: "dev_000000000000000000000001"))
        let hashes = [digest("first"), digest("second")]
        try await loop.run { [loop] in
            let client = RedisClient(loop: loop, address: redis.address)
            try #require(await client.waitUntilConnected(milliseconds: 20_000))
            let publisher = RevocationPublisher(
                loop: loop, devices: KnownDevices(client: client, keys: keys),
                postgres: PostgresClient(configuration, on: loop),
                log: Log(process: "test", level: .error, time: SystemTime(), sink: MemoryLogSink()))
            func live() async throws {
                for hash in hashes {
                    _ = try await client.command([
                        "SET", .text(keys.device(hash)), .bytes(facts), "PX", "600000",
                    ])
                }
            }
            func standing() async throws -> [String?] {
                var found: [String?] = []
                for hash in hashes { found.append(try await client.command(["GET", .text(keys.device(hash))]).text) }
                return found
            }
            try await live()
            await publisher.once(again: false)
            #expect(try await standing() == ["-", "-"])
            try await live()
            await publisher.once(again: false)
            #expect(try await standing().allSatisfy { $0 != "-" })
            await publisher.once(again: true)
            #expect(try await standing() == ["-", "-"])
            // Once every live entry must have passed, nobody needs to hear of it again.
            try await live()
            time.advance(milliseconds: 2 * KnownDevices.deviceMilliseconds + 1)
            await publisher.once(again: true)
            #expect(try await standing().allSatisfy { $0 != "-" })
            await client.close()
        }
    }
}
