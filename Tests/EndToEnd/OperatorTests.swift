import EventLoop
import Foundation
import Redis
import RedisQueue
import TestSupport
import Testing

/// What operators type, against the real binaries under load.
@Suite(.timeLimit(.minutes(2))) struct OperatorTests {
    private func ratchet(_ system: RunningSystem, _ arguments: String...) async throws -> CommandRun {
        let executable = try RatchetProcess.binaries().appendingPathComponent("ratchet").path
        return try await CommandRun.of(
            executable, arguments,
            [
                "RATCHET_MODE": "development", "RATCHET_SECRET": String(repeating: "s", count: 32),
                "RATCHET_REDIS_URL": system.redis.url, "RATCHET_PG": system.database.conninfo,
                "RATCHET_PG_SCHEMA": system.schema, "RATCHET_KEY_PREFIX": system.keys.prefix,
                "RATCHET_RUN_DIR": "/tmp/ratchet-e2e-no-such-run",
            ])
    }

    private func identify(_ system: RunningSystem, _ user: String) async throws -> (status: Int, text: String) {
        let connection = try await RawHTTPClient.connect(host: "127.0.0.1", port: system.port)
        let body = #"{"bundleId":"\#(Workload.bundle)","appUserId":"\#(user)"}"#
        let response = try await connection.exchange(
            "POST /api/sdk/v1/identify HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                + "Content-Length: \(body.utf8.count)\r\n\r\n\(body)")
        return (response.status, response.text)
    }

    @Test func aDrainUnderLoadEndsAtZeroHoldsThroughAWipeAndIsLifted() async throws {
        let system = try await RunningSystem.start(extraRoots: TestPKI().rootPEM)
        let doctor = try await ratchet(system, "doctor")
        #expect(doctor.output.contains("a job came back through verifier and writer after "), "\(doctor)")
        for index in 0..<50 { #expect(try await identify(system, "user_\(index)").status == 200) }
        let drained = try await ratchet(system, "queues", "drain", "--all", "--reason", "move to a new server")
        #expect(drained.code == 0, "\(drained)")
        #expect(drained.output.hasPrefix("the queue is drained: "), "\(drained)")
        #expect(drained.output.hasSuffix("ratchet queues resume --all --only drain\n"), "\(drained)")
        #expect(try await system.counts().customers == 50)
        let refused = try await identify(system, "late")
        #expect(refused.status == 503)
        // The order is Postgres' too: a wiped Redis gets it back before it takes a write.
        try await system.redis.command(["FLUSHALL"])
        var seeded = false
        while !seeded {
            #expect(try await identify(system, "late").status == 503)
            seeded = try await system.loop.run { [system] in
                await QueueSeed(client: system.client, keys: system.keys).isSeeded() == true
            }
        }
        #expect(try await identify(system, "late").status == 503)
        let untried = try await ratchet(system, "doctor")
        #expect(untried.output.contains("not tried: lane verify.live is drained"), "\(untried)")
        let resumed = try await ratchet(system, "queues", "resume", "--all")
        #expect(resumed.code == 0 && resumed.output.contains("lane write is open for intake again\n"), "\(resumed)")
        var status = 503
        while status == 503 { status = try await identify(system, "late").status }
        #expect(status == 200)
        await system.stop()
    }

    @Test func aDoctorNamesTheWorkerThatDoesNotAnswerAndLeavesNothingBehind() async throws {
        let system = try await RunningSystem.start(extraRoots: TestPKI().rootPEM)
        system.verifier.kill(9)
        _ = await system.verifier.stop()
        let doctor = try await ratchet(system, "doctor")
        #expect(
            doctor.output.contains("ratchet-verifier took a job of lane verify.live")
                || doctor.output.contains("ratchet-verifier took no job of lane verify.live"), "\(doctor)")
        let lanes = try await system.loop.run { [system] in
            try await QueueStatistics(client: system.client, keys: system.keys).lanes()
        }
        #expect(lanes.allSatisfy { $0.left == 0 })
        await system.stop()
    }
}
