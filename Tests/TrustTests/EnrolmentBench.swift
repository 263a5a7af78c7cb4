import Foundation
import TestSupport
import Testing

@testable import Trust

/// How many enrolments one core judges (`make bench-enrolment`); nothing is asserted of the time.
@Suite(.enabled(if: ProcessInfo.processInfo.environment["RATCHET_BENCH_ENROLMENT"] != nil)) struct EnrolmentBench {
    @Test func attestationsJudgedInASecondOfOneCore() throws {
        let authenticator = TestAuthenticator()
        let challenge = "AAECAwQFBgcICQoLDA0ODw"
        let now: Int64 = 1_795_996_800
        let devices = (0..<32).map { _ in
            authenticator.attest(challenge: challenge, team: "ABCDE12345", bundle: "com.example.app", nowSeconds: now)
        }
        let hash = authenticator.clientDataHash(challenge)
        let roots = try TrustedRoot.roots(pem: Array(authenticator.rootPEM.utf8))
        let expectation = AttestationExpectation(teamID: "ABCDE12345", bundleID: "com.example.app")
        func rate(_ verifier: () throws -> AttestationVerifier) throws -> Double {
            var judged = 0
            let begin = clock()
            while clock() - begin < 3 * CLOCKS_PER_SEC {
                let device = devices[judged % devices.count]
                let verdict = try verifier().verify(
                    attestation: device.object, keyID: device.keyID, clientDataHash: hash, expectation: expectation,
                    nowMilliseconds: now * 1000)
                guard case .verified = verdict else {
                    Issue.record("refused: \(verdict)")
                    return 0
                }
                judged += 1
            }
            return Double(judged) / (Double(clock() - begin) / Double(CLOCKS_PER_SEC))
        }
        let warm = try AttestationVerifier(roots: roots)
        print("bench: attestations/s of a core, intermediate remembered: \(Int(try rate { warm }))")
        print(
            "bench: attestations/s of a core, every intermediate new: "
                + "\(Int(try rate { try AttestationVerifier(roots: roots) }))")
    }
}
