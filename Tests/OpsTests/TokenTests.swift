import Foundation
import OpsCore
import TestSupport
import Testing

@testable import CLI

@Suite struct TokenTests {
    private typealias Vector = SharedVectors.SignedTransaction

    private func vectors() throws -> [Vector] {
        try SharedVectors.cases("vectors/storekit_jws.json")
    }

    /// Runs `verify jws` on a token, kept in a file of its own.
    private func verify(_ token: String, _ flags: [String], environment: [String: String] = [:]) async throws
        -> CommandLineTool.Output
    {
        let file = URL(fileURLWithPath: "/tmp/ratchet-ops-token-\(UUID().uuidString)")
        try Data(token.utf8).write(to: file)
        defer { try? FileManager.default.removeItem(at: file) }
        let tool = CommandLineTool(session: Session(environment: environment))
        return await tool.run(["verify", "jws", file.path] + flags)
    }

    @Test func theVectorsComeOutAsTheVerifierSays() async throws {
        let roots = [
            "apple-g3": "certs/AppleRootCA-G3.pem", "synthetic": "certs/synthetic-root.pem",
            "apple-library-test": "certs/apple-library-testCA.pem",
        ]
        var seen = (good: 0, bad: 0)
        // Those of another rule than the verifier's own (dates at now, part of the claims) are the verifier's tests.
        for vector in try vectors() where vector.checkAt != "now" && vector.want != "minimal" {
            let root = try SharedVectors.path(try #require(roots[vector.root]))
            let flags = [
                "--bundle", vector.bundleId, "--environment", vector.environment, "--root", root, "--at",
                vector.now ?? "2026-11-30T00:00:00Z", "--json",
            ]
            let output = try await verify("\n \(vector.jws)\r\n", flags)
            let isOnlySpaced = ["enc-leading-space", "enc-trailing-newline"].contains(vector.name)
            let isGood = isOnlySpaced || vector.expected == "ok"
            #expect(output.exitCode == (isGood ? 0 : 1), "\(vector.name): \(output.text)")
            let document = try parsed(output.text)
            #expect(document["verified"] == .bool(isGood))
            #expect((document["reason"] == .null) == isGood)
            #expect(document["notChecked"] == .list([]))
            if isGood {
                seen.good += 1
                #expect(document["claims"]?["bundleId"] == .string(vector.bundleId))
            } else {
                seen.bad += 1
            }
        }
        #expect(seen.good > 3 && seen.bad > 30)
    }

    @Test func aRealTokenVerifiesUnderTheBuiltInRootAndSaysWhatWasNotChecked() async throws {
        let real = try #require(try vectors().first { $0.name == "real-current-leaf-sandbox-renewal" })
        let output = try await verify(real.jws, ["--at", "2026-11-30T00:00:00Z"])
        #expect(output.exitCode == 0)
        #expect(output.text.hasPrefix("verified    yes\nreason      -\nnotChecked  bundle, environment\n"))
        #expect(output.text.contains("checkedAt   2026-11-30T00:00:00.000Z\n"))
        #expect(output.text.contains("claims, proven:\n"))
        let wrong = try await verify(real.jws, ["--bundle", "com.other"])
        #expect(wrong.exitCode == 1 && wrong.text.contains("reason      bundle_mismatch\n"))
        #expect(wrong.text.contains("claims, NOT proven:\n"))
    }

    @Test func whiteSpaceAroundATokenIsIgnoredAndSaid() async throws {
        let real = try #require(try vectors().first { $0.name == "real-current-leaf-sandbox-renewal" }).jws
        for (text, isSaid) in [(real, false), (real + "\n", false), (real + "\r\n", false), (" \n\t\(real) \n", true)] {
            let output = try await verify(text, ["--json"])
            #expect(output.exitCode == 0)
            #expect(try parsed(output.text)["trimmed"] == .bool(isSaid))
            #expect(output.errors.contains("an app that sends it so proves nothing") == isSaid)
        }
        #expect(try await verify(real.replacing(".", with: ". "), []).exitCode == 1)
    }

    @Test func theClockIsWhatAtSays() async throws {
        let pki = TestPKI()
        let root = URL(fileURLWithPath: "/tmp/ratchet-ops-root-\(UUID().uuidString).pem")
        try Data(pki.rootPEM.utf8).write(to: root)
        defer { try? FileManager.default.removeItem(at: root) }
        let token = pki.sign(TestPKITransaction())
        let flags = ["--root", root.path, "--json"]
        let now = try parsed(try await verify(token, flags).text)
        #expect(now["verified"] == .bool(true), "\(now)")
        #expect(now["claims"]?["environment"] == .string("Production"))
        // Two days before it was signed (2025-07-01), it was signed in the future.
        let early = try await verify(token, flags + ["--at", "2025-06-29T00:00:00Z"])
        #expect(try parsed(early.text)["reason"] == .string("signed_in_future"))
        #expect(early.exitCode == 1)
        let apple = try await verify(token, ["--json"])
        #expect(try parsed(apple.text)["reason"] == .string("untrusted_root"))
    }

    @Test func xcodesTokensAreNeverVerified() async throws {
        let pki = TestPKI()
        let root = URL(fileURLWithPath: "/tmp/ratchet-ops-root-\(UUID().uuidString).pem")
        try Data(pki.rootPEM.utf8).write(to: root)
        defer { try? FileManager.default.removeItem(at: root) }
        for environment in ["Xcode", "LocalTesting"] {
            let token = pki.sign(TestPKITransaction().with { $0.environment = environment })
            for flags in [[], ["--environment", environment]] {
                let output = try await verify(token, ["--root", root.path, "--json"] + flags)
                #expect(output.exitCode == 1)
                #expect(try parsed(output.text)["reason"] == .string("wrong_environment"))
            }
        }
    }

    @Test func theRootsOfADevelopmentInstallationAreBelievedAsTheVerifierDoes() async throws {
        let pki = TestPKI()
        let root = URL(fileURLWithPath: "/tmp/ratchet-ops-root-\(UUID().uuidString).pem")
        try Data(pki.rootPEM.utf8).write(to: root)
        defer { try? FileManager.default.removeItem(at: root) }
        let environment = ["RATCHET_MODE": "development", "RATCHET_EXTRA_APPLE_ROOTS": root.path]
        #expect(try await verify(pki.sign(TestPKITransaction()), [], environment: environment).exitCode == 0)
    }

    @Test func whatIsNoTokenOrNoFileIsSaid() async throws {
        let garbage = try await verify("bla", ["--json"])
        #expect(garbage.exitCode == 1)
        #expect(try parsed(garbage.text)["claims"] == .null)
        #expect(try parsed(garbage.text)["reason"] == .string("malformed_jws"))
        #expect(try await verify("", []).exitCode == 1)
        let tool = CommandLineTool(session: Session(environment: [:]))
        #expect(await tool.run(["verify", "jws", "/nonexistent"]).exitCode == 4)
        #expect(await tool.run(["verify", "jws", "/tmp"]).exitCode == 2)
        #expect(try await verify("bla", ["--at", "yesterday"]).exitCode == 2)
        #expect(try await verify("bla", ["--root", "/etc/hostname"]).exitCode == 2)
        #expect(try await verify("bla", ["--root", "/nonexistent"]).exitCode == 4)
    }
}
