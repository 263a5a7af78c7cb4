import Foundation
import HTTP
import Testing

@testable import Service

@Suite struct SettingsTests {
    private static let secret = String(repeating: "s", count: 32)

    private func settings(_ environment: [String: String] = [:]) throws -> Settings {
        try Settings(environment: ["RATCHET_MODE": "development"].merging(environment) { $1 }, for: .ingress)
    }

    private func problem(_ environment: [String: String], for process: ServiceProcess = .ingress) -> String? {
        do {
            _ = try Settings(environment: environment, for: process)
            return nil
        } catch {
            #expect(error.code == .configuration)
            #expect(error.exitCode == 2)
            return error.message
        }
    }

    @Test func everyDefaultKeepsItsRuleInBothModes() throws {
        let production = try Settings(environment: ["RATCHET_SECRET": Self.secret], for: .ingress)
        #expect(production.mode == .production)
        #expect(production.ingressPort == 8080)
        #expect(production.redisURL == "unix:///run/redis/redis-server.sock")
        #expect(production.addressPerMinute == 600)
        #expect(production.maxConnectionsPerAddress == 1000)
        #expect(production.secret == Array(Self.secret.utf8))
        #expect(production.extraAppleRoots == nil)
        #expect(production.trustedProxies.count == 2)
        #expect(production.ingressLoops >= 1)
        #expect(production.operationsAddress == ListenAddress(host: "127.0.0.1", port: 0))
        let development = try settings(["RATCHET_DATA": "/srv/data"])
        #expect(development.secret == nil)
        #expect(development.addressPerMinute == 0)
        #expect(development.maxConnectionsPerAddress == 0)
        #expect(development.runFolder == "/srv/data/run")
        #expect(development.redisURL == "unix:///srv/data/redis.sock")
        #expect(development.postgresConnection == "host='/srv/data/pgsock' dbname=ratchet user=ratchet")
    }

    @Test func everyEntryIsCompleteAndItsExampleKeepsItsRule() {
        #expect(SettingsTable.settings.count >= 41)
        let names = SettingsTable.settings.map(\.entry.name)
        #expect(Set(names).count == names.count)
        for setting in SettingsTable.settings {
            let entry = setting.entry
            #expect(entry.name.hasPrefix("RATCHET_"))
            #expect(!entry.meaning.isEmpty && !entry.meaning.contains("\n"))
            #expect(!entry.readers.isEmpty)
            #expect(setting.value(of: entry.example) != nil, "\(entry.name)")
            #expect(setting.value(of: "\u{1}") == nil, "\(entry.name)")
            if entry.name.hasSuffix("_MS") { #expect(entry.unit == "ms") }
            if entry.name.hasSuffix("_BYTES") { #expect(entry.unit == "bytes") }
        }
    }

    @Test(arguments: [
        ("RATCHET_MODE", ["Production", "prod", " production"]),
        ("RATCHET_INGRESS_PORT", ["65536", "-1", "+80", "0x50", "080", "8080 ", "80.0", "٨٠", "99999999999999999999"]),
        (
            "RATCHET_OPS_LISTEN",
            ["127.0.0.1", "localhost:80", ":80", "127.0.0.1:", "::1:80", "[127.0.0.1]:80", "[::1]"]
        ),
        ("RATCHET_PARTITIONS", ["0", "3", "512", "-16"]),
        ("RATCHET_PG_SCHEMA", ["Ratchet", "1a", "a-b", "a.b", "a\"b", String(repeating: "a", count: 49), "é"]),
        ("RATCHET_KEY_PREFIX", ["a b", "{a}", "a}", "é:", "a\n", String(repeating: "a", count: 65)]),
        (
            "RATCHET_REDIS_URL",
            [
                "localhost", "unix:relative", "unix:///", "unix:///a?db=x", "http://h", "redis://", "redis://h:0",
                "redis://h/x", "redis://h h", "redis-sentinel://h", "redis-sentinel://h/", "redis-sentinel://h,/main",
                "redis-sentinel://h/main/x", "redis-cluster:///0", "redis-cluster://h,", "redis-cluster://h/1",
            ]
        ),
        ("RATCHET_PG", ["no pairs", "host=a 'b'", "host='open", "a\u{0}b"]),
        ("RATCHET_INGRESS_HOST", ["localhost", "127.1", "256.0.0.1", "[::1]", "127.0.0.1:80", "::1%lo"]),
        ("RATCHET_TRUSTED_PROXIES", ["10.0.0.0/33", "10.0.0.1,", "a", "::/129", "10.0.0.0/", "10.0.0.1, ::1"]),
        ("RATCHET_SECRET", [String(repeating: "s", count: 31)]),
        ("RATCHET_REDIS_UNCHECKED", ["true", "yes", "2"]),
        ("RATCHET_DURABILITY", ["always", "FSYNC"]),
        ("RATCHET_LOG_LEVEL", ["warning", "trace"]),
        ("RATCHET_BATCH", ["0", "10001"]),
        ("RATCHET_DATA", ["a'b", "a\\b", "a\"b", "a\nb"]),
    ])
    func aBadValueNamesTheVariableTheRuleAndAnExample(name: String, values: [String]) throws {
        let entry = try #require(SettingsTable.settings.first { $0.entry.name == name }?.entry)
        for value in values {
            let message = try #require(
                problem(["RATCHET_MODE": "development"].merging([name: value]) { $1 }), "\(name)=\(value)")
            #expect(message.hasPrefix("\(name) must be \(entry.rule), for example \(entry.example)"))
            #expect(!message.contains("\n"))
            if entry.isSecret, value != "redis://" { #expect(!message.contains(value)) }
        }
    }

    @Test(arguments: [
        ("RATCHET_OPS_LISTEN", ["[::1]:0", "0.0.0.0:65535"]),
        (
            "RATCHET_REDIS_URL",
            [
                "redis://h", "redis://:p%40@10.0.0.1:6379/3", "redis://u:p@[::1]:1", "unix:///a/b",
                "unix://u:p@/a?db=2", "redis-sentinel://h,[::1]:5000/main", "redis-sentinel://:p@h:1/main/2",
                "redis-cluster://u:p@a,b:7001", "redis-cluster://a/0",
            ]
        ),
        ("RATCHET_PG", ["postgresql:///db", "host=/a dbname = 'x y'", "password=\\ "]),
        ("RATCHET_TRUSTED_PROXIES", ["none", "10.0.0.0/8,2001:db8::/32,::1"]),
        ("RATCHET_PARTITIONS", ["1", "256"]), ("RATCHET_INGRESS_PORT", ["0", "65535"]),
    ])
    func goodValuesAreTaken(name: String, values: [String]) {
        for value in values { #expect(problem(["RATCHET_MODE": "development", name: value]) == nil, "\(value)") }
    }

    @Test func everyProblemIsToldAtOnce() throws {
        let message = try #require(problem(["RATCHET_INGRESS_PORT": "x", "RATCHET_BATCH": "y"]))
        #expect(message.split(separator: "\n").count == 3)
        #expect(message.contains("RATCHET_SECRET is needed outside development"))
        #expect(message.contains(#"it is "x""#))
    }

    @Test func onlyWhoReadsTheSecretNeedsIt() {
        #expect(problem([:], for: .ingress) != nil)
        #expect(problem([:], for: .writer) == nil)
        #expect(problem(["RATCHET_MODE": "development"], for: .ingress) == nil)
    }

    @Test func anEmptyValueCountsAsAbsent() throws {
        #expect(try settings(["RATCHET_INGRESS_PORT": "", "RATCHET_SECRET": ""]).ingressPort == 8080)
    }

    @Test func extraRootsAreRefusedOutsideDevelopment() throws {
        let roots = ["RATCHET_EXTRA_APPLE_ROOTS": "/tmp/roots.pem"]
        #expect(try settings(roots).extraAppleRoots == "/tmp/roots.pem")
        let message = try #require(problem(roots, for: .verifier))
        #expect(message.contains("RATCHET_MODE=development"))
    }

    @Test func aTokensDelaysAndItsWayToAppleAreFixedOutsideDevelopment() throws {
        let secret = ["RATCHET_SECRET": String(repeating: "s", count: 32)]
        func problem(_ name: String, _ value: String, _ mode: String) -> String? {
            self.problem(secret.merging([name: value, "RATCHET_MODE": mode]) { $1 }, for: .sweeper)
        }
        #expect(problem("RATCHET_ADSERVICES_TIME_SCALE", "2", "production")?.contains("must be 1 unless") == true)
        #expect(problem("RATCHET_ADSERVICES_TIME_SCALE", "2", "development") == nil)
        #expect(problem("RATCHET_ADSERVICES_URL", "http://a/", "production")?.contains("must be https://") == true)
        #expect(problem("RATCHET_ADSERVICES_URL", "http://127.0.0.1:9/api/", "development") == nil)
        #expect(problem("RATCHET_ADSERVICES_URL", "https://proxy.example.com/v1/", "production") == nil)
        for wrong in ["ftp://a/", "https://", "https://u:p@a/", "https://a/?x=1", "https://a:0/", "api.apple.com"] {
            #expect(problem("RATCHET_ADSERVICES_URL", wrong, "development")?.contains("must be an https://") == true)
        }
        #expect(self.problem([:], for: .sweeper)?.contains("RATCHET_SECRET is needed") == true)
    }

    @Test func replicatedDurabilityNeedsReplicas() throws {
        #expect(
            problem(["RATCHET_DURABILITY": "replicated"], for: .writer)?.hasPrefix("RATCHET_REPLICAS must be") == true)
        #expect(problem(["RATCHET_DURABILITY": "replicated", "RATCHET_REPLICAS": "2"], for: .writer) == nil)
    }

    @Test func unknownNamesAreToldWithTheNearestKnownOne() throws {
        let settings = try settings([
            "RATCHET_INGRES_PORT": "1", "RATCHET_HTTP_MAX_BODY": "2", "RATCHET_WHOLLY_DIFFERENT_THING": "3",
            "RATCHET_SHARED": "/x", "OTHER": "4", "ratchet_mode": "5",
            "RATCHET_" + String(repeating: "Q", count: 200): "",
        ])
        #expect(
            settings.unknownNames.prefix(3) == [
                .init(name: "RATCHET_HTTP_MAX_BODY", nearest: "RATCHET_HTTP_MAX_BODY_BYTES"),
                .init(name: "RATCHET_INGRES_PORT", nearest: "RATCHET_INGRESS_PORT"),
                .init(name: "RATCHET_" + String(repeating: "Q", count: 200), nearest: nil),
            ])
        #expect(settings.unknownNames.last == .init(name: "RATCHET_WHOLLY_DIFFERENT_THING", nearest: nil))
        #expect(settings.unknownNames.count == 4)
    }

    @Test(arguments: [
        ("host=/run user=u password=hunter2 dbname=d", "host=/run user=u password=*** dbname=d"),
        ("password = 'hunter2 \\' x' host=h", "password=*** host=h"),
        ("PASSWORD=hunter2", "PASSWORD=***"), ("sslpassword=hunter2 passfile=hunter2", "sslpassword=*** passfile=***"),
        ("host='a b'", "host='a b'"),
        ("postgresql://u:hunter2@h:5/d", "postgresql://u:***@h:5/d"),
        ("postgres://u:hun@ter2@h/d", "postgres://u:***@h/d"), ("postgres://u:hunter2/@h/d", "postgres://u:***@h/d"),
        ("postgresql:///d?host=/x&password=hunter2", "postgresql:///d?host=/x&password=***"),
        ("postgresql:///d?pass%77ord=hunter2", "postgresql:///d?pass%77ord=***"),
        ("postgresql://h/d?user=a@b&password=hunter2", "postgresql://***"),
        ("postgresql://u@h/d", "postgresql://u@h/d"),
        ("redis://:hunter2@h:6379/0", "redis://:***@h:6379/0"), ("redis://hunter2@h", "redis://:***@h"),
        ("redis://u:hunter2@[::1]:1", "redis://u:***@[::1]:1"), ("unix:///run/redis.sock", "unix:///run/redis.sock"),
        ("redis-sentinel://u:hunter2@a,b:1/main", "redis-sentinel://u:***@a,b:1/main"),
        ("redis-cluster://:hunter2@a:1,b", "redis-cluster://:***@a:1,b"),
        ("unix://:hunter2@/a?db=2", "unix://:***@/a?db=2"), ("unix://hunter2@/a", "unix://:***@/a"),
        ("hunter2", "***"), ("host='hunter2", "***"),
    ])
    func passwordsInAddressesAreMasked(text: String, shown: String) {
        #expect(AddressText.masked(text) == shown)
        #expect(!AddressText.masked(text).contains("hunter2"))
    }

    @Test func listingsHideSecretsAndTellTheSource() throws {
        let settings = try settings([
            "RATCHET_SECRET": "hunter2-hunter2-hunter2-hunter2-hunter2", "RATCHET_PG": "host=h password=hunter2",
            "RATCHET_BATCH": "7", "RATCHET_REDIS_URL": "redis://:hunter2@h",
        ])
        for text in [settings.listing, settings.listingJSON] {
            #expect(!text.contains("hunter2"))
            for setting in SettingsTable.settings { #expect(text.contains(setting.entry.name)) }
        }
        #expect(settings.listing.contains("7 jobs  (environment)"))
        #expect(settings.listing.contains("(hidden)"))
        #expect(
            settings.listingJSON.contains(
                #"{"name":"RATCHET_BATCH","value":"7","unit":"jobs","source":"environment","secret":false,"#))
        #expect(settings.listingJSON.contains(#"{"name":"RATCHET_EXTRA_APPLE_ROOTS","value":null,"#))
    }

    @Test func theExampleFileHoldsEverySettingWithItsDefault() {
        let text = Settings.exampleFile
        let lines = text.split(separator: "\n")
        #expect(lines.allSatisfy { $0.hasPrefix("#") || $0.hasPrefix("RATCHET_") })
        for setting in SettingsTable.settings {
            #expect(lines.count { $0.drop { $0 == "#" }.hasPrefix("\(setting.entry.name)=") } == 1)
        }
        #expect(lines.contains("RATCHET_SECRET="))
        #expect(lines.contains("#RATCHET_INGRESS_PORT=8080"))
        #expect(lines.contains("RATCHET_PG=\"host=/run/postgresql dbname=ratchet user=ratchet\""))
        #expect(text.contains("Default: the number of cores."))
    }

    /// After a change of the table: RATCHET_WRITE_EXAMPLE=1 swift test --filter deployHoldsTheExampleFile
    @Test func deployHoldsTheExampleFile() throws {
        let root = URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
        let file = root.deletingLastPathComponent().appending(path: "deploy/env.example")
        if Settings.processEnvironment()["RATCHET_WRITE_EXAMPLE"] == "1" {
            try Data(Settings.exampleFile.utf8).write(to: file)
        }
        #expect(try String(contentsOf: file, encoding: .utf8) == Settings.exampleFile)
    }

    @Test func theExampleFileUncommentedIsAValidConfiguration() throws {
        var environment = ["RATCHET_SECRET": Self.secret]
        for line in Settings.exampleFile.split(separator: "\n")
        where line.hasPrefix("#RATCHET_") || line.hasPrefix("RATCHET_") {
            let parts = line.drop { $0 == "#" }.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false)
            let value = parts[1].hasPrefix("\"") ? parts[1].dropFirst().dropLast() : parts[1]
            if !value.isEmpty { environment[String(parts[0])] = String(value) }
        }
        #expect(environment.count > 35)
        let settings = try Settings(environment: environment, for: .ingress)
        #expect(settings.unknownNames.isEmpty)
        #expect(settings.httpServerConfiguration.maxHeaders == 100)
    }

    @Test func theEnvironmentOfTheProcessIsRead() {
        let environment = Settings.processEnvironment()
        #expect(environment["PATH"]?.isEmpty == false)
    }

    @Test func relativePathsAreMadeAbsolute() throws {
        #expect(try settings(["RATCHET_RUN_DIR": "x/run"]).runFolder.hasSuffix("/x/run"))
        #expect(try settings(["RATCHET_RUN_DIR": "x/run"]).runFolder.hasPrefix("/"))
    }
}

@Suite struct AddressRangeTests {
    private func inside(_ range: String, _ address: String) throws -> Bool {
        try #require(AddressRange(range)).contains(#require(AddressRange.bytes(of: address)))
    }

    @Test func rangesHoldWhatTheirPrefixSays() throws {
        #expect(try inside("10.0.0.0/8", "10.255.0.1"))
        #expect(try !inside("10.0.0.0/8", "11.0.0.1"))
        #expect(try inside("192.0.2.128/25", "192.0.2.255"))
        #expect(try !inside("192.0.2.128/25", "192.0.2.127"))
        #expect(try inside("192.0.2.7", "192.0.2.7"))
        #expect(try !inside("192.0.2.7", "192.0.2.6"))
        #expect(try inside("2001:db8::/33", "2001:db8:7fff::1"))
        #expect(try !inside("2001:db8::/33", "2001:db8:8000::1"))
        #expect(try inside("0.0.0.0/0", "1.2.3.4"))
        #expect(try !inside("0.0.0.0/0", "2001:db8::1"))
        #expect(try inside("::/0", "1.2.3.4"))
        #expect(try inside("::ffff:10.0.0.0/104", "10.1.1.1"))
    }

    @Test func peersOfTheServerAreCompared() throws {
        let range = try #require(AddressRange("127.0.0.0/8"))
        #expect(range.contains(PeerAddress(ipv4: 127, 0, 0, 9)))
        #expect(!range.contains(PeerAddress(ipv4: 128, 0, 0, 9)))
        #expect(!range.contains([127, 0, 0, 1]))
    }
}
