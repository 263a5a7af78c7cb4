import Foundation
import FuzzTargets
import Testing

/// What the fuzzer has found is kept, and holds.
@Suite(.timeLimit(.minutes(3))) struct CorpusTests {
    @Test(arguments: FuzzTarget.all) func everyInputOfTheCorpusHoldsItsProperties(_ target: FuzzTarget) throws {
        let files = try Corpus.files(of: target.name)
        #expect(files.count > 5, "the corpus of \(target) is missing")
        for file in files {
            let input = [UInt8](try Data(contentsOf: file))
            #expect(throws: Never.self, "\(target)/\(file.lastPathComponent)") { try target.check(input) }
        }
    }

    @Test func everyFolderHasItsTarget() throws {
        #expect(try Corpus.folders() == FuzzTarget.all.map(\.name).sorted())
    }

    @Test func theCorpusStaysSmall() throws {
        let bytes = try FuzzTarget.all.reduce(0) { sum, target in
            try Corpus.files(of: target.name).reduce(sum) { try $0 + Data(contentsOf: $1).count }
        }
        #expect(bytes < 300_000)
    }
}

/// Tests/Fuzz/Corpus.
enum Corpus {
    private static let root = URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
        .appending(path: "Corpus")

    static func folder(of target: String) -> URL { root.appending(path: target) }

    static func folders() throws -> [String] { try FileManager.default.contentsOfDirectory(atPath: root.path).sorted() }

    static func files(of target: String) throws -> [URL] {
        try FileManager.default.contentsOfDirectory(at: folder(of: target), includingPropertiesForKeys: nil)
            .sorted { $0.path < $1.path }
    }
}
