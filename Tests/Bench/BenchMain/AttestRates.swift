import Bytes
import Foundation
import TestSupport
import Trust

/// Team, bundle, time and challenge of the attestations below.
private enum Sample {
    static let team = "ABCDE12345"
    static let bundle = "com.example.app"
    /// 2026-11-30.
    static let seconds: Int64 = 1_795_996_800
    static let challenge = "AAECAwQFBgcICQoLDA0ODw"
}

/// Writes attestations of devices made on the spot, for ours and for others to judge: `root.pem` and `attestations`, one
/// a line: key identifier and object in base64.
struct AttestSamples: Subcommand {
    static let name = "attest-samples"

    static func run(_ options: Options) throws -> [String: Double] {
        let folder = URL(fileURLWithPath: try options.text("folder"))
        let count = try options.number("count", default: 64)
        let authenticator = TestAuthenticator()
        // Others read the machine's clock: valid at the fixed date above and at today's.
        let today = Int64(Date().timeIntervalSince1970)
        let lines = (0..<count).map { _ in
            let device = authenticator.attest(
                challenge: Sample.challenge, team: Sample.team, bundle: Sample.bundle, nowSeconds: Sample.seconds
            ) {
                $0.validity = (min(today, Sample.seconds) - 86_400, max(today, Sample.seconds) + 86_400)
                // As long as Apple's.
                $0.receipt = Array(repeating: 0x5A, count: 4000)
            }
            return "\(device.keyIDText) \(device.objectText)"
        }
        try Data(authenticator.rootPEM.utf8).write(to: folder.appendingPathComponent("root.pem"))
        try Data(lines.joined(separator: "\n").utf8).write(to: folder.appendingPathComponent("attestations"))
        return ["attestations": Double(count)]
    }
}

/// How many attestations a second of one core judges good.
struct AttestRates: Subcommand {
    static let name = "attest"

    struct Refused: Error {
        let verdict: AttestationVerdict
    }

    static func run(_ options: Options) throws -> [String: Double] {
        let folder = URL(fileURLWithPath: try options.text("folder"))
        let seconds = Double(try options.number("seconds", default: 2))
        let roots = try TrustedRoot.roots(pem: Array(Data(contentsOf: folder.appendingPathComponent("root.pem"))))
        let text = try String(contentsOf: folder.appendingPathComponent("attestations"), encoding: .utf8)
        let devices = text.split(separator: "\n").map { line in
            let parts = line.split(separator: " ").map { Array(Data(base64Encoded: String($0)) ?? Data()) }
            return (keyID: parts[0], object: parts[1])
        }
        let hash = TestAuthenticator().clientDataHash(Sample.challenge)
        let expectation = AttestationExpectation(teamID: Sample.team, bundleID: Sample.bundle)

        func judge(_ index: Int, _ verifier: AttestationVerifier) throws {
            let device = devices[index % devices.count]
            let verdict = verifier.verify(
                attestation: device.object, keyID: device.keyID, clientDataHash: hash, expectation: expectation,
                nowMilliseconds: Sample.seconds * 1000)
            guard case .verified = verdict else { throw Refused(verdict: verdict) }
        }
        let verifier = try AttestationVerifier(roots: roots)
        return [
            "knownPerSecond": try rate(seconds: seconds) { try judge($0, verifier) },
            "unknownPerSecond": try rate(seconds: seconds) { try judge($0, AttestationVerifier(roots: roots)) },
        ]
    }
}
