import Bytes
import Foundation
import TestSupport
import Trust

/// Writes signed transactions of a chain made on the spot, for ours and for others to verify: `root.der` and `tokens`,
/// one a line.
struct JWSSamples: Subcommand {
    static let name = "jws-samples"

    static func run(_ options: Options) throws -> [String: Double] {
        let folder = URL(fileURLWithPath: try options.text("folder"))
        let count = try options.number("count", default: 1000)
        let pki = TestPKI()
        let tokens = (0..<count).map { index in
            pki.sign(
                TestPKITransaction().with {
                    $0.transactionID = String(2_000_000_000_000_000 + index)
                    $0.originalTransactionID = String(2_000_000_000_000_000 + index / 3)
                    $0.productID = "com.example.app.plan\(index % 17)"
                })
        }
        try Data(pki.rootDER).write(to: folder.appendingPathComponent("root.der"))
        try Data(tokens.joined(separator: "\n").utf8).write(to: folder.appendingPathComponent("tokens"))
        return ["tokens": Double(count), "bytes": Double(tokens[0].utf8.count)]
    }
}

/// How many signed transactions a second of one core turns into verified claims.
struct JWSRates: Subcommand {
    static let name = "jws"

    struct Refused: Error {
        let verdict: TransactionVerdict
    }

    static func run(_ options: Options) throws -> [String: Double] {
        let folder = URL(fileURLWithPath: try options.text("folder"))
        let seconds = Double(try options.number("seconds", default: 2))
        let roots = [try TrustedRoot(der: Array(Data(contentsOf: folder.appendingPathComponent("root.der"))))]
        let text = try String(contentsOf: folder.appendingPathComponent("tokens"), encoding: .utf8)
        let tokens = text.split(separator: "\n").map(String.init)
        let expectation = TransactionExpectation(bundleID: "com.example.app")

        func verify(_ token: String, _ verifier: SignedTransactionVerifier) throws {
            // 2026-11-30: the leaf of the samples is valid.
            let verdict = verifier.verify(
                jws: token, expectation: expectation, nowMilliseconds: 1_795_996_800_000)
            guard case .verified = verdict else { throw Refused(verdict: verdict) }
        }
        // All signatures are checked: no more are remembered than one round of tokens makes forgotten.
        let verifier = try SignedTransactionVerifier(roots: roots, signaturesRemembered: 1)
        let remembering = try SignedTransactionVerifier(roots: roots)
        return [
            "knownPerSecond": try rate(seconds: seconds) { try verify(tokens[$0 % tokens.count], verifier) },
            "repeatedPerSecond": try rate(seconds: seconds) { try verify(tokens[$0 % tokens.count], remembering) },
            // A verifier of its own has no chain in memory.
            "unknownPerSecond": try rate(seconds: seconds) {
                try verify(tokens[$0 % tokens.count], SignedTransactionVerifier(roots: roots))
            },
        ]
    }
}
