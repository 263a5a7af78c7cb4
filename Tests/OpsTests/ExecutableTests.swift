import EventLoop
import Foundation
import Jobs
import OpsCore
import Redis
import RedisQueue
import TestSupport
import Testing

/// The built `ratchet` itself: exit codes, descriptors, pipes.
@Suite struct ExecutableTests {
    private func ratchet(
        _ arguments: [String], _ environment: [String: String] = [:], input: String = ""
    ) async throws -> CommandRun {
        let executable = try RatchetProcess.binaries().appendingPathComponent("ratchet").path
        return try await CommandRun.of(executable, arguments, environment, input: input)
    }

    @Test func eachExitCodeIsWhatHelpSays() async throws {
        let installation = try await TestInstallation.make()
        let environment = installation.environment
        let good = try await ratchet(["orgs", "create", "demo"], environment)
        #expect(good.code == 0 && good.output == "organization demo created\n" && good.errors.isEmpty)
        let no = try await ratchet(["verify", "jws", "-"], input: "no.token.here\n")
        #expect(no.code == 1 && no.output.hasPrefix("verified    no\n") && no.errors.isEmpty)
        let usage = try await ratchet(["orgs", "create"], environment)
        #expect(usage.code == 2 && usage.output.isEmpty && usage.errors.contains("(see: ratchet orgs create --help)"))
        let away = try await ratchet(
            ["queues", "--json"],
            environment.merging(["RATCHET_REDIS_URL": "unix:///tmp/ratchet-no-redis.sock"]) { $1 })
        #expect(away.code == 3 && away.errors.contains("redis is away"))
        #expect(try parsed(away.output)["error"] == .string("dependency_away"))
        let database = try await ratchet(
            ["orgs", "list"], environment.merging(["RATCHET_PG": "host=/tmp/ratchet-no-postgres dbname=x"]) { $1 })
        #expect(database.code == 3 && database.errors.split(separator: "\n").count == 1)
        let missing = try await ratchet(["customers", "show", "$nobody", "--org", "demo"], environment)
        #expect(missing.code == 4 && missing.errors == "ratchet: demo has no customer '$nobody'\n")
    }

    @Test func migrateTellsOfEachMigrationOnStandardError() async throws {
        let installation = try await TestInstallation.make(migrated: false)
        let result = try await ratchet(["migrate"], installation.environment)
        #expect(result.code == 0 && result.errors.contains("ratchet: migration 1 applied\n"))
        #expect(result.output.hasPrefix("the schema is at "))
    }

    @Test func aReaderThatGoesAwayEndsItQuietly() async throws {
        let executable = try RatchetProcess.binaries().appendingPathComponent("ratchet").path
        let shell = "exec 3>&1; { '\(executable)' config; echo $? >&3; } | exec true"
        let result = try await CommandRun.of("/bin/sh", ["-c", shell], [:])
        #expect(result.output == "0\n" && result.errors.isEmpty, "\(result)")
    }

    @Test func versionIsOneLine() async throws {
        for arguments in [["version"], ["--version"]] {
            let result = try await ratchet(arguments)
            #expect(result.code == 0 && result.output.hasPrefix("ratchet 0."))
        }
    }

    @Test func aDrainWhoseTerminalGoesAwayEndsCleanlyAndItsOrderStands() async throws {
        let (installation, result) = try await drain(hangup: "default", "wait $drain")
        #expect(result.output.contains("lane write is not drained yet, 1 jobs are left; intake stays closed"))
        #expect(result.output.contains("to watch again: ratchet queues drain --lane write --reason 'move'\n"))
        #expect(result.output.hasSuffix("exit 1\n"), "\(result)")
        #expect(try await installation.json("queues", "orders").elements.count == 1)
    }

    @Test func aDrainUnderNohupGoesOn() async throws {
        let (_, result) = try await drain(hangup: "ignore", "$ratchet queues resume --lane write; wait $drain")
        #expect(result.output.contains("its order was lifted or ran out, and intake is open"))
        #expect(result.output.hasSuffix("exit 1\n"), "\(result)")
    }

    /// Drains a lane of one job that nobody works off, whose terminal goes away once the order stands.
    /// - Parameter hangup: what SIGHUP does to the command when it starts, as `env` names it.
    private func drain(hangup: String, _ afterwards: String) async throws -> (TestInstallation, CommandRun) {
        let installation = try await TestInstallation.make()
        let keys = QueueKeys(prefix: installation.prefix, partitions: 2)
        let (loop, address) = (EventLoop(name: "drain-executable"), installation.redis.address)
        defer { loop.stop() }
        try await loop.run {
            let client = RedisClient(loop: loop, address: address, configuration: RedisClientConfiguration())
            _ = await client.waitUntilConnected(milliseconds: 5_000)
            try await QueueSeed(client: client, keys: keys).seed()
            _ = await RedisJobSink(loop: loop, client: client, keys: keys).accept(
                NewJob(kind: .identify, lane: .write, organization: "demo", subject: "u", payload: Array("{}".utf8)))
            await client.close()
        }
        let executable = try RatchetProcess.binaries().appendingPathComponent("ratchet").path
        let shell = """
            ratchet='\(executable)'
            env --\(hangup)-signal=HUP $ratchet queues drain --lane write --reason move >&3 &
            drain=$!
            until $ratchet queues orders | grep -q '^drain '; do :; done
            kill -HUP $drain
            \(afterwards)
            echo "exit $?"
            """
        return (
            installation,
            try await CommandRun.of(
                "/bin/sh", ["-c", "exec 3>&1; " + shell],
                installation.environment.merging(["PATH": "/usr/bin:/bin"]) { $1 })
        )
    }
}
