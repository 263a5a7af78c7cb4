import Foundation

/// The public verification cases, read in place: the folder of the environment variable RATCHET_SHARED, else `shared`
/// beside the package.
package enum SharedVectors {
    package struct Missing: Error, CustomStringConvertible {
        package let description: String
    }

    /// The path of a file there.
    /// - Throws: `Missing`, which says what to set.
    package static func path(_ name: String) throws -> String {
        let package = URL(fileURLWithPath: #filePath).appending(path: "../../..").standardized
        let folder =
            ProcessInfo.processInfo.environment["RATCHET_SHARED"].map { URL(fileURLWithPath: $0) }
            ?? package.appending(path: "../shared").standardized
        let file = folder.appending(path: name)
        guard FileManager.default.fileExists(atPath: file.path) else {
            throw Missing(description: "the vectors are not at \(file.path): set RATCHET_SHARED")
        }
        return file.path
    }

    package static func bytes(_ name: String) throws -> [UInt8] {
        [UInt8](try Data(contentsOf: URL(fileURLWithPath: path(name))))
    }

    /// The cases of a JSON file.
    package static func cases<Case: Decodable>(_ name: String) throws -> [Case] {
        try JSONDecoder().decode([Case].self, from: Data(bytes(name)))
    }

    /// One case of `vectors/storekit_jws.json`.
    package struct SignedTransaction: Decodable, Sendable {
        package var name: String
        package var jws: String
        package var root: String
        package var bundleId: String
        package var environment: String
        package var now: String?
        package var checkAt: String?
        package var want: String?
        package var expected: String
    }

    /// One case of `vectors/appattest_attestations.json`; what a kind of case doesn't have is nil.
    package struct Attestation: Decodable, Sendable {
        package var name: String
        package var kind: String
        package var attestation: String?
        package var authData: String?
        package var keyId: String?
        package var clientDataHash: String?
        package var teamId: String?
        package var bundleId: String?
        package var environment: String?
        package var now: String?
        package var root: String?
        package var expected: String
    }
}
