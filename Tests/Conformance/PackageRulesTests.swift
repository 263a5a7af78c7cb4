import Foundation
import Testing

/// What design keeps apart, read from the package description and the source tree.
@Suite struct PackageRulesTests {
    private let package: PackageDescription

    init() async throws {
        package = try await PackageDescription.current.value
    }

    @Test func nothingIsDownloaded() {
        #expect(package.packageDependencies == 0)
    }

    @Test(arguments: [
        ("IngressMain", ["Postgres", "Store", "CLibpq", "Trust", "OpsCore", "WorkerCore"]),
        ("IngressCore", ["Postgres", "Store", "CLibpq", "Trust", "WorkerCore"]),
        ("Verifier", ["Postgres", "Store", "CLibpq", "HTTPClient", "CCurl"]),
        ("Writer", ["HTTPClient", "CCurl"]),
        ("WriterCore", ["HTTPClient", "CCurl", "Trust"]),
        ("Sweeper", ["Redis", "RedisQueue", "CHiredis", "Trust"]),
        ("AppleAds", ["EventLoop", "HTTP", "HTTPClient", "Redis", "Postgres", "Store", "Service", "CLinux", "CCurl"]),
        ("WorkerCore", ["Postgres", "Store", "CLibpq", "Trust"]),
        ("Trust", ["EventLoop", "HTTP", "Redis", "Postgres", "RedisQueue", "Store", "Service", "CLinux"]),
        ("Wire", ["EventLoop", "HTTP", "Redis", "Postgres", "RedisQueue", "Store", "Service", "CLinux", "Jobs"]),
        ("Jobs", ["EventLoop", "HTTP", "Redis", "Postgres", "RedisQueue", "Store", "Service", "CLinux", "Wire"]),
        ("Store", ["Redis", "RedisQueue", "CHiredis", "HTTP", "Trust"]),
    ])
    func whatIsKeptApartIsNotLinked(target: String, forbidden: [String]) throws {
        let reached = try package.reached(from: target)
        #expect(reached.intersection(forbidden) == [], "\(target) reaches what it must not link")
    }

    @Test func importsGoDownwardOnly() throws {
        for target in package.targets where !target.isTestOnly {
            let layer = try #require(Layer(path: target.path), "\(target.path) is in no group of Sources")
            for name in target.dependencies {
                let dependency = try #require(package.target(name))
                let lower = try #require(
                    Layer(path: dependency.path), "\(target.name) depends on \(name) outside Sources")
                #expect(layer.mayUse(lower), "\(target.name) (\(layer)) must not depend on \(name) (\(lower))")
                #expect(dependency.kind != .executable, "\(target.name) depends on the executable \(name)")
            }
        }
    }

    @Test func sharedTargetsFormLevels() throws {
        // A target uses only levels before its own. A new shared target has to be given its place here.
        let levels: [Set<String>] = [
            ["CLinux", "CCurl", "CHiredis", "CLibpq", "COpenSSL", "CSimdjson"],
            ["Bytes", "JSON", "EventLoop"],
            ["Wire", "Jobs", "HTTP", "HTTPClient", "AppleAds", "Redis", "Postgres"],
            ["Trust", "Store", "Service"],
            ["RedisQueue"],
        ]
        func level(_ name: String) -> Int? { levels.firstIndex { $0.contains(name) } }
        for target in package.targets where Layer(path: target.path) == .shared {
            let own = try #require(level(target.name), "\(target.name) has no level yet")
            for name in target.dependencies {
                let lower = try #require(level(name), "\(target.name) depends on \(name), which is not shared")
                #expect(lower < own, "\(target.name) must not depend on \(name)")
            }
        }
    }

    @Test func eachCLibraryHasItsFewConnectors() {
        let connectors: [String: Set<String>] = [
            "CLinux": ["EventLoop", "HTTP", "Service"],
            "CCurl": ["HTTPClient"],
            "CHiredis": ["Redis"],
            "CLibpq": ["Postgres"],
            "COpenSSL": ["Bytes", "Redis", "Trust", "TestSupport"],
            "CSimdjson": ["JSON"],
            "CTestPKI": ["TestSupport"],
        ]
        for target in package.targets where target.isC {
            let users = package.targets.filter { $0.dependencies.contains(target.name) }.map(\.name)
            let allowed = connectors[target.name] ?? []
            #expect(Set(users).subtracting(allowed) == [], "\(target.name) is used beside its connectors")
            #expect(target.dependencies == [], "\(target.name) is a shim and uses nothing of ours")
        }
    }

    @Test func everySwiftTargetIsStrict() {
        for target in package.targets where !target.isC {
            #expect(target.treatsWarningsAsErrors, "\(target.name) lets warnings pass")
            #expect(
                target.upcomingFeatures.isSuperset(of: [
                    "ExistentialAny", "MemberImportVisibility", "InternalImportsByDefault",
                ]), "\(target.name) lacks a feature that every target has")
        }
    }

    @Test func nothingThatShipsUsesTestSupport() {
        let support = Set(package.targets.filter(\.isTestOnly).map(\.name))
        for target in package.targets where !target.isTestOnly {
            #expect(support.isDisjoint(with: target.dependencies), "\(target.name) ships test support")
        }
    }

    @Test func targetsLieInFoldersOfTheirName() {
        for target in package.targets where target.name != "TestSupport" {
            #expect(target.path.split(separator: "/").last.map(String.init) == target.name)
        }
    }

    @Test func noTypeIsNamedLikeAModule() throws {
        // The loop's class is what the module EventLoop is; qualified names of that module are never needed.
        let known: Set<String> = ["EventLoop"]
        let declaration =
            #/^(?:(?:package|public|internal|final|indirect|@\w+)\s+)*(?:struct|class|enum|actor|protocol|typealias)\s+(\w+)/#
        for target in package.targets where !target.isC {
            for file in try target.sources(".swift") where !known.contains(target.name) {
                #expect(file.name != target.name + ".swift", "\(file.path) is named like its module")
                for line in file.text.split(separator: "\n") {
                    guard let type = try declaration.prefixMatch(in: line)?.1 else { continue }
                    #expect(type != target.name, "\(file.path): the type \(type) is named like its module")
                }
            }
        }
    }

    @Test func cLibrariesStayInside() throws {
        let leak = #/^\s*(?:package|public|@_exported|@preconcurrency)\s+import\s+(C[A-Z]\w*)/#
        for target in package.targets where !target.isC {
            for file in try target.sources(".swift") {
                for line in file.text.split(separator: "\n") {
                    let leaked = try leak.prefixMatch(in: line)?.1
                    #expect(leaked == nil, "\(file.path) leaks the C target \(leaked ?? "")")
                }
            }
        }
    }

    @Test func publicHeadersOfCTargetsIncludeNoSystemHeader() throws {
        let include = #/^\s*#\s*include\s*(.+)/#
        let allowed: Set<Substring> = ["<stdint.h>", "<stddef.h>", "<stdbool.h>"]
        for target in package.targets where target.isC {
            let headers = try target.sources(".h").filter { $0.path.contains("/include/") }
            #expect(!headers.isEmpty, "\(target.name) has no public header")
            for header in headers {
                for line in header.text.split(separator: "\n") {
                    guard let included = try include.prefixMatch(in: line)?.1 else { continue }
                    #expect(allowed.contains(included), "\(header.path) includes \(included)")
                }
            }
        }
    }

    @Test func onlyTheClientLibraryIsPublic() throws {
        let declaration =
            #/^\s*(?:@\w+\s+)*(?:public|open)\s+(?:\w+\s+)*(?:struct|class|enum|actor|protocol|func|var|let|init|typealias)\b/#
        for target in package.targets where !target.isC && !target.isTestOnly {
            for file in try target.sources(".swift") {
                for (number, line) in file.text.split(separator: "\n", omittingEmptySubsequences: false).enumerated() {
                    let found = try declaration.prefixMatch(in: line) != nil
                    #expect(!found, "\(file.path):\(number + 1) is public: across targets it is 'package'")
                }
            }
        }
    }
}

/// The groups of folders under Sources; each may use itself and Shared.
private enum Layer: Equatable {
    case shared, ingress, workers, ops

    init?(path: String) {
        let parts = path.split(separator: "/")
        guard parts.count == 3, parts[0] == "Sources" else { return nil }
        switch parts[1] {
        case "Shared": self = .shared
        case "Ingress": self = .ingress
        case "Workers": self = .workers
        case "Ops": self = .ops
        default: return nil
        }
    }

    func mayUse(_ other: Layer) -> Bool { other == .shared || other == self }
}
