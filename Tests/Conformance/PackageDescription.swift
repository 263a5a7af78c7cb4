import Foundation
import TestSupport

/// What SwiftPM itself understands of Package.swift, reduced to what the rules ask for.
struct PackageDescription: Sendable {
    struct Target: Sendable {
        enum Kind: String, Sendable { case regular, executable, test, other }

        let name: String
        let kind: Kind
        /// Relative to the package's root.
        let path: String
        let dependencies: [String]
        let treatsWarningsAsErrors: Bool
        let upcomingFeatures: Set<String>
        /// The C shims are the targets named C<Library>; everything else is Swift.
        let isC: Bool

        /// Tests and what only they use.
        var isTestOnly: Bool { path.hasPrefix("Tests/") }

        struct Source { let name, path, text: String }

        /// The files below the target's folder whose name ends so.
        func sources(_ suffix: String) throws -> [Source] {
            let folder = PackageDescription.root.appending(path: path)
            guard let walk = FileManager.default.enumerator(at: folder, includingPropertiesForKeys: nil) else {
                throw Failure(description: "\(path) cannot be read")
            }
            return try walk.compactMap { $0 as? URL }.filter { $0.lastPathComponent.hasSuffix(suffix) }.map {
                Source(
                    name: $0.lastPathComponent, path: "\(path)\($0.path.dropFirst(folder.path.count))",
                    text: try String(contentsOf: $0, encoding: .utf8))
            }
        }
    }

    struct Failure: Error, CustomStringConvertible { let description: String }

    static let root = URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
        .deletingLastPathComponent()

    /// Read once for all tests: the manifest has to be compiled for it.
    static let current = Task { try PackageDescription() }

    let targets: [Target]
    let packageDependencies: Int

    func target(_ name: String) -> Target? { targets.first { $0.name == name } }

    /// Every target that `name` links, through whatever lies between.
    func reached(from name: String) throws -> Set<String> {
        var reached: Set<String> = []
        var waiting = [name]
        while let next = waiting.popLast() {
            guard let target = target(next) else { throw Failure(description: "there is no target \(next)") }
            waiting += target.dependencies.filter { reached.insert($0).inserted }
        }
        return reached
    }

    private init() throws {
        // `swift test` holds the lock of .build: this call gets a folder of its own.
        let scratch = FileManager.default.temporaryDirectory.appending(path: "ratchet-package-\(UUID().uuidString)")
        defer { try? FileManager.default.removeItem(at: scratch) }
        let dump = try CommandRun.run(
            "/usr/bin/env",
            ["swift", "package", "--package-path", Self.root.path, "--scratch-path", scratch.path, "dump-package"],
            ProcessInfo.processInfo.environment)
        guard dump.code == 0 else { throw Failure(description: "swift package dump-package: \(dump.errors)") }
        let bytes = Data(dump.output.utf8)
        guard let top = try JSONSerialization.jsonObject(with: bytes) as? [String: Any],
            let targets = top["targets"] as? [[String: Any]], let dependencies = top["dependencies"] as? [Any]
        else { throw Failure(description: "dump-package answered another shape than expected") }
        self.targets = try targets.map(Target.init(dumped:))
        packageDependencies = dependencies.count
    }
}

extension PackageDescription.Target {
    fileprivate init(dumped: [String: Any]) throws {
        guard let name = dumped["name"] as? String, let type = dumped["type"] as? String,
            let path = dumped["path"] as? String, let dependencies = dumped["dependencies"] as? [[String: Any]],
            let settings = dumped["settings"] as? [[String: Any]]
        else { throw PackageDescription.Failure(description: "a target of another shape than expected: \(dumped)") }
        self.name = name
        self.path = path
        kind = Kind(rawValue: type) ?? .other
        // {"byName": ["Bytes", null]}, and "target" or "product" in the same way.
        self.dependencies = try dependencies.map { dependency in
            guard let first = (dependency.first?.value as? [Any])?.first as? String else {
                throw PackageDescription.Failure(description: "\(name): an unknown dependency \(dependency)")
            }
            return first
        }
        isC = name.count > 1 && name.hasPrefix("C") && name.dropFirst().first?.isUppercase == true && kind == .regular
        let kinds = settings.filter { $0["tool"] as? String == "swift" }.compactMap { $0["kind"] as? [String: Any] }
        func values(_ key: String) -> [String] {
            kinds.compactMap { ($0[key] as? [String: Any])?["_0"] as? String }
        }
        treatsWarningsAsErrors = values("treatAllWarnings") == ["error"]
        upcomingFeatures = Set(values("enableUpcomingFeature"))
    }
}
