import Foundation
import Testing

/// Alerts that name what does not exist never fire.
@Suite struct AlertTests {
    private static let root = URL(fileURLWithPath: #filePath).appending(path: "../../..").standardized

    private static func text(_ path: String) throws -> String {
        try String(contentsOf: root.appending(path: path), encoding: .utf8)
    }

    private func matches(_ pattern: String, _ text: String) throws -> Set<String> {
        let expression = try NSRegularExpression(pattern: pattern)
        let range = NSRange(text.startIndex..., in: text)
        return Set(
            expression.matches(in: text, range: range).compactMap { match in
                Range(match.range(at: 1), in: text).map { String(text[$0]) }
            })
    }

    @Test func everyMetricOfAnAlertIsRegisteredSomewhere() throws {
        let used = try matches(#"\b(ratchet_[a-z_]+)"#, Self.text("deploy/alerts.yml"))
        var sources = ""
        let files = try #require(
            FileManager.default.enumerator(at: Self.root.appending(path: "Sources"), includingPropertiesForKeys: nil))
        for case let file as URL in files where file.pathExtension == "swift" {
            sources += try String(contentsOf: file, encoding: .utf8)
        }
        let registered = try matches(#""(ratchet_[a-z_]+)""#, sources)
        #expect(used.count > 5)
        for name in used {
            let family = name.hasSuffix("_bucket") ? String(name.dropLast("_bucket".count)) : name
            #expect(registered.contains(family), "\(name) is no metric of any process")
        }
    }

    @Test func everyAlertHasItsSectionInTheRunbook() throws {
        let sections = try matches(#"docs/runbook\.md#([a-z-]+)"#, Self.text("deploy/alerts.yml"))
        let headings = try matches(#"(?m)^## (.+)$"#, Self.text("docs/runbook.md"))
            .map { $0.lowercased().replacingOccurrences(of: " ", with: "-") }
        #expect(sections.count > 5)
        for section in sections { #expect(headings.contains(section), "the runbook lacks \(section)") }
    }
}
