// swift-tools-version: 6.2
import PackageDescription

/// Every Swift target is held to the same rules: language mode 6 (the tools version's default), no warning, and
/// imports that say what they leak.
let strict: [SwiftSetting] = [
    .treatAllWarnings(as: .error),
    .enableUpcomingFeature("ExistentialAny"),
    .enableUpcomingFeature("MemberImportVisibility"),
    .enableUpcomingFeature("InternalImportsByDefault"),
]

func shared(_ name: String, _ dependencies: [Target.Dependency] = [], resources: [Resource]? = nil) -> Target {
    .target(
        name: name, dependencies: dependencies, path: "Sources/Shared/\(name)", resources: resources,
        swiftSettings: strict)
}

/// The C side: narrow shims whose public headers include no system header (they would clash with Glibc's module).
func shim(_ name: String, libraries: [String] = [], cxx: [CXXSetting] = []) -> Target {
    .target(
        name: name, path: "Sources/Shared/\(name)", cSettings: [.define("_GNU_SOURCE")], cxxSettings: cxx,
        linkerSettings: libraries.map { .linkedLibrary($0) })
}

func group(_ folder: String, _ name: String, _ dependencies: [Target.Dependency], main: Bool = false) -> Target {
    main
        ? .executableTarget(
            name: name, dependencies: dependencies, path: "Sources/\(folder)/\(name)", swiftSettings: strict)
        : .target(name: name, dependencies: dependencies, path: "Sources/\(folder)/\(name)", swiftSettings: strict)
}

func tests(_ name: String, _ dependencies: [Target.Dependency], path: String? = nil) -> Target {
    .testTarget(
        name: name, dependencies: dependencies + ["TestSupport"], path: path ?? "Tests/\(name)", swiftSettings: strict)
}

/// Runs hot paths for `make bench-instructions`; no other build sees it.
let instructions: [Target] =
    Context.environment["RATCHET_INSTRUCTIONS"] == "1"
    ? [
        .executableTarget(
            name: "InstructionPaths",
            dependencies: [
                "Bytes", "HTTP", "JSON", "RedisQueue", "Store", "TestSupport", "Trust", "Wire",
            ],
            path: "Tests/Instructions", exclude: ["recorded.json"], swiftSettings: strict)
    ] : []

/// What `make bench` measures inside a process of its own; no other build sees it.
let benchmarks: [Target] =
    Context.environment["RATCHET_BENCH"] == "1"
    ? [
        .executableTarget(
            name: "BenchMain",
            dependencies: [
                "Bytes", "EventLoop", "Jobs", "Postgres", "Redis", "RedisQueue", "Service", "Store", "TestSupport",
                "Trust", "Wire", "WorkerCore", "WriterCore",
            ], path: "Tests/Bench/BenchMain", swiftSettings: strict)
    ] : []

/// The fuzzer's executable has libFuzzer's `main`, which only a build with `--sanitize fuzzer` links: `make fuzz` asks
/// for it, and no other build sees it.
let fuzzing: [Target] =
    Context.environment["RATCHET_FUZZ"] == "1"
    ? [
        .executableTarget(
            name: "FuzzMain", dependencies: ["FuzzTargets"], path: "Tests/Fuzz/FuzzMain",
            swiftSettings: strict + [.unsafeFlags(["-parse-as-library"])])
    ] : []

let package = Package(
    name: "ratchet",
    products: [
        .executable(name: "ratchet-ingress", targets: ["IngressMain"]),
        .executable(name: "ratchet-verifier", targets: ["Verifier"]),
        .executable(name: "ratchet-writer", targets: ["Writer"]),
        .executable(name: "ratchet-sweeper", targets: ["Sweeper"]),
        .executable(name: "ratchet", targets: ["CLI"]),
    ],
    targets: [
        shim("CLinux"),
        shim("CHiredis", libraries: ["hiredis"]),
        shim("CLibpq", libraries: ["pq"]),
        shim("CCurl", libraries: ["curl"]),
        shim("COpenSSL", libraries: ["crypto"]),
        shim("CSimdjson", libraries: ["simdjson"]),

        shared("Bytes", ["COpenSSL"]),
        shared("JSON", ["CSimdjson"]),
        shared("Wire", ["Bytes", "JSON"]),
        shared("Jobs", ["Bytes"]),
        shared("EventLoop", ["CLinux"]),
        shared("HTTP", ["CLinux", "EventLoop"]),
        shared("Redis", ["CHiredis", "COpenSSL", "EventLoop"]),
        shared("Postgres", ["CLibpq", "EventLoop"]),
        shared("HTTPClient", ["CCurl", "EventLoop"]),
        shared("AppleAds", ["Bytes", "JSON"]),
        shared("Trust", ["Bytes", "COpenSSL", "JSON", "Wire"]),
        shared("RedisQueue", ["Bytes", "EventLoop", "Jobs", "Redis", "Service"]),
        shared(
            "Store", ["AppleAds", "Bytes", "EventLoop", "JSON", "Postgres", "Wire"],
            resources: [.embedInCode("Migrations")]),
        shared("Service", ["Bytes", "CLinux", "EventLoop", "HTTP"]),

        group(
            "Ingress", "IngressCore",
            ["Bytes", "EventLoop", "HTTP", "JSON", "Jobs", "RedisQueue", "Service", "Wire"]),
        group(
            "Ingress", "IngressMain",
            ["Bytes", "EventLoop", "HTTP", "IngressCore", "Redis", "RedisQueue", "Service", "Wire"], main: true),
        group("Workers", "WorkerCore", ["EventLoop", "Jobs", "Redis", "RedisQueue", "Service"]),
        group(
            "Workers", "Verifier",
            ["Bytes", "EventLoop", "Jobs", "Redis", "RedisQueue", "Service", "Trust", "Wire", "WorkerCore"],
            main: true),
        group(
            "Workers", "WriterCore",
            ["EventLoop", "JSON", "Jobs", "Postgres", "Redis", "RedisQueue", "Store", "Wire", "WorkerCore"]),
        group(
            "Workers", "Writer",
            [
                "Bytes", "EventLoop", "Jobs", "Postgres", "Redis", "RedisQueue", "Service", "Store", "Wire",
                "WorkerCore", "WriterCore",
            ], main: true),
        group(
            "Workers", "SweeperCore",
            [
                "AppleAds", "Bytes", "EventLoop", "HTTPClient", "JSON", "Postgres", "Service", "Store", "Wire",
            ]),
        group(
            "Workers", "Sweeper",
            ["EventLoop", "HTTPClient", "Postgres", "Service", "Store", "SweeperCore"], main: true),
        group(
            "Ops", "OpsCore",
            [
                "Bytes", "EventLoop", "JSON", "Jobs", "Postgres", "Redis", "RedisQueue", "Service", "Store", "Trust",
                "Wire",
            ]),
        group("Ops", "CLI", ["Bytes", "EventLoop", "OpsCore", "RedisQueue", "Service", "Store"], main: true),

        .target(
            name: "CTestPKI", path: "Tests/Support/CTestPKI", linkerSettings: [.linkedLibrary("crypto")]),
        .target(
            name: "TestSupport",
            dependencies: ["Bytes", "COpenSSL", "CTestPKI", "EventLoop", "Postgres", "Redis", "Store", "Wire"],
            path: "Tests/Support", exclude: ["CTestPKI"], swiftSettings: strict),
        .target(
            name: "FuzzTargets", dependencies: ["Bytes", "HTTP", "JSON", "Jobs", "Trust", "Wire"],
            path: "Tests/Fuzz/FuzzTargets", resources: [.embedInCode("Fixtures")], swiftSettings: strict),
        tests("FuzzCorpusTests", ["Bytes", "FuzzTargets", "Wire"], path: "Tests/Fuzz/FuzzCorpusTests"),
        tests("BytesTests", ["Bytes"]),
        tests("WireTests", ["Bytes", "FuzzTargets", "JSON", "Wire"]),
        tests("JobsTests", ["Jobs"]),
        tests("EventLoopTests", ["EventLoop"]),
        tests("HTTPClientTests", ["EventLoop", "HTTPClient"]),
        tests("AppleAdsTests", ["AppleAds", "JSON"]),
        tests("HTTPTests", ["EventLoop", "FuzzTargets", "HTTP"]),
        tests("RedisTests", ["EventLoop", "Redis"]),
        tests("PostgresTests", ["EventLoop", "Postgres"]),
        tests("TrustTests", ["Bytes", "JSON", "Trust", "Wire"]),
        tests("RedisQueueTests", ["EventLoop", "Jobs", "Redis", "RedisQueue", "Service"]),
        tests("StoreTests", ["AppleAds", "Bytes", "EventLoop", "JSON", "Postgres", "Store", "Wire"]),
        tests("ServiceTests", ["EventLoop", "HTTP", "Service"]),
        tests(
            "IngressTests",
            ["Bytes", "EventLoop", "HTTP", "IngressCore", "Jobs", "Redis", "RedisQueue", "Service", "Wire"]),
        tests(
            "WorkerTests",
            [
                "Bytes", "EventLoop", "Jobs", "Postgres", "Redis", "RedisQueue", "Store", "Trust", "Verifier", "Wire",
                "WorkerCore", "Writer", "WriterCore",
            ]),
        tests(
            "SweeperTests",
            [
                "AppleAds", "Bytes", "EventLoop", "HTTPClient", "JSON", "Postgres", "Service", "Store", "SweeperCore",
                "Wire",
            ]),
        tests(
            "OpsTests",
            [
                "Bytes", "CLI", "EventLoop", "JSON", "Jobs", "OpsCore", "Postgres", "Redis", "RedisQueue", "Service",
                "Store", "Wire",
            ]),
        tests("Conformance", ["EventLoop", "HTTP"]),
        tests(
            "EndToEnd",
            [
                "Bytes", "EventLoop", "HTTPClient", "Jobs", "Postgres", "Redis", "RedisQueue", "Service", "Store",
                "Wire",
            ]),
    ] + fuzzing + instructions + benchmarks,
    cLanguageStandard: .c17,
    cxxLanguageStandard: .cxx17
)
