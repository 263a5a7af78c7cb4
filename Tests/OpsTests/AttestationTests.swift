import Foundation
import OpsCore
import TestSupport
import Testing

@testable import CLI

private typealias Vector = SharedVectors.Attestation

@Suite struct AttestationTests {
    private func vectors() throws -> [Vector] {
        let all: [Vector] = try SharedVectors.cases("vectors/appattest_attestations.json")
        return all.filter { $0.kind == "appattest-attestation" }
    }

    private func verify(_ vector: Vector, _ flags: [String] = []) async throws -> CommandLineTool.Output {
        let file = URL(fileURLWithPath: "/tmp/ratchet-ops-attestation-\(UUID().uuidString)")
        try Data((vector.attestation ?? "").utf8).write(to: file)
        defer { try? FileManager.default.removeItem(at: file) }
        let tool = CommandLineTool(session: Session(environment: [:]))
        return await tool.run(
            [
                "verify", "attestation", file.path, "--key-id", vector.keyId ?? "", "--client-data-hash",
                vector.clientDataHash ?? "", "--team", vector.teamId ?? "", "--bundle", vector.bundleId ?? "", "--at",
                vector.now ?? "", "--json",
            ] + flags)
    }

    @Test func theVectorsComeOutAsTheVerifierSays() async throws {
        let roots = [
            "apple-appattest": "certs/AppleAppAttestationRootCA.pem",
            "synthetic-appattest": "certs/synthetic-appattest-root.pem",
        ]
        var good = 0
        for vector in try vectors() {
            let root = try SharedVectors.path(try #require(roots[vector.root ?? ""]))
            let output = try await verify(vector, ["--environment", vector.environment ?? "", "--root", root])
            let isGood = vector.expected == "ok"
            #expect(output.exitCode == (isGood ? 0 : 1), "\(vector.name): \(output.text)")
            let document = try parsed(output.text)
            #expect(document["verified"] == .bool(isGood))
            #expect((document["reason"] == .null) == isGood)
            if isGood { good += 1 }
        }
        #expect(good >= 15)
    }

    @Test func aRealDeviceIsGoodUnderTheBuiltInRootAndTheOutputSaysWhatWasNotChecked() async throws {
        let real = try #require(try vectors().first { $0.name == "real-node-app-attest-production" })
        let output = try await verify(real)
        #expect(output.exitCode == 0)
        let document = try parsed(output.text)
        #expect(document["environment"] == .string("production"))
        #expect(document["notChecked"] == .list([.string("environment")]))
    }

    @Test func whatIsNoBase64OrNoEnvironmentIsSaidToBeSo() async throws {
        var vector = try #require(try vectors().first { $0.expected == "ok" })
        let wrong = try await verify(vector, ["--environment", "Production"])
        #expect(wrong.exitCode == 2 && wrong.errors.contains("production or development"))
        vector.keyId = "no base64!"
        let keyless = try await verify(vector)
        #expect(keyless.exitCode == 2 && keyless.errors.contains("--key-id"))
    }
}
