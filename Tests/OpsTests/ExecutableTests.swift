import Foundation
import OpsCore
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
}
