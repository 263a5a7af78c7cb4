internal import Glibc

/// How strict a process is about what it is given.
package enum Mode: String, CaseIterable, Sendable {
    case production
    case development
}

/// When Redis has taken a write for good.
package enum Durability: String, CaseIterable, Sendable {
    /// The reply leaves after the append-only file is synced.
    case fsync
    /// The append-only file is synced each second: up to a second of writes can be lost with the machine.
    case everysec
    /// Every replica has it (WAIT).
    case replicated
}

/// Every setting there is. To add one, add an entry: validation, typed access (`settings.<property>`), `ratchet
/// config` and deploy/env.example follow from it, in this order.
package struct SettingsTable: Sendable {
    static let shared = SettingsTable()

    let general = SettingTopic("General")
    package let mode: Setting<Mode> = .choice(
        "RATCHET_MODE", default: "production", readBy: .everyone,
        "development lifts the demands that only make sense in a real installation; never expose it")
    package let secret: Setting<[UInt8]?> = .optional(
        "RATCHET_SECRET", "at least 32 bytes", example: "the output of: openssl rand -base64 48",
        readBy: [.ingress, .sweeper], secrecy: .hidden, neededInProduction: true,
        "keys challenges and the encryption of tokens; the same on every ingress and sweeper, needed outside development"
    ) { $0.utf8.count >= 32 ? Array($0.utf8) : nil }
    package let dataFolder: Setting<String> = .parsed(
        "RATCHET_DATA", SettingPath.rule, example: "/var/lib/ratchet",
        default: .byMode(production: "/var/lib/ratchet", development: ".ratchet"), readBy: [.stack, .commandLine],
        "folder of the development stack's data", parse: SettingPath.absolute)
    package let runFolder: Setting<String> = .parsed(
        "RATCHET_RUN_DIR", SettingPath.rule, example: "/run/ratchet",
        default: .byMode(production: "/run/ratchet", development: "$RATCHET_DATA/run"), readBy: .everyone,
        "folder where each process keeps <name>.pid and <name>.ops, made when missing", parse: SettingPath.absolute)
    package let operationsAddress: Setting<ListenAddress> = .parsed(
        "RATCHET_OPS_LISTEN", "address:port with a numeric address, [address]:port for IPv6",
        example: "127.0.0.1:9090", default: "127.0.0.1:0", readBy: .services,
        "where /healthz, /readyz and /metrics are served; port 0 takes a free one; keep it private",
        parse: ListenAddress.init)
    package let logLevel: Setting<LogLevel> = .choice(
        "RATCHET_LOG_LEVEL", default: "info", readBy: .services, "log lines below this level are not written")
    package let stopGraceMilliseconds: Setting<Int> = .integer(
        "RATCHET_STOP_GRACE_MS", unit: "ms", 10...600_000, default: 20_000, readBy: .services,
        "how long a stop may take before the process ends itself")

    let redis = SettingTopic("Redis")
    package let redisURL: Setting<String> = .parsed(
        "RATCHET_REDIS_URL",
        "unix://[[user]:password@]/path[?db=n], redis://[[user]:password@]host[:port][/n],"
            + " redis-sentinel://[[user]:password@]host[:port],host[:port]/name[/n]"
            + " or redis-cluster://[[user]:password@]host[:port],host[:port]",
        example: "redis://127.0.0.1:6379",
        default: .byMode(
            production: "unix:///run/redis/redis-server.sock", development: "unix://$RATCHET_DATA/redis.sock"),
        readBy: .queue, secrecy: .address,
        "the Redis that holds the queue: one server, what sentinels watch, or a cluster", parse: AddressText.redis)
    package let keyPrefix: Setting<String> = .parsed(
        "RATCHET_KEY_PREFIX", "1 to 64 printable ASCII characters without spaces and braces", example: "ratchet:",
        default: "ratchet:", readBy: .queue, "starts every Redis key; one installation, one prefix"
    ) { text in
        let allowed = text.utf8.allSatisfy { (0x21...0x7E).contains($0) && $0 != 0x7B && $0 != 0x7D }
        return allowed && (1...64).contains(text.utf8.count) ? text : nil
    }
    package let partitions: Setting<Int> = .parsed(
        "RATCHET_PARTITIONS", unit: "partitions", "a power of two from 1 to 256", example: "16", default: 16,
        readBy: .queue, "partitions of the queue; fixed when the installation is created"
    ) { text in
        Setting<Int>.wholeNumber(text).flatMap { (1...256).contains($0) && $0.nonzeroBitCount == 1 ? $0 : nil }
    }
    package let redisTimeoutMilliseconds: Setting<Int> = .integer(
        "RATCHET_REDIS_TIMEOUT_MS", unit: "ms", 100...600_000, default: 10_000, readBy: .queue,
        "a Redis call without an answer for so long closes its connection")
    package let redisUnchecked: Setting<Bool> = .flag(
        "RATCHET_REDIS_UNCHECKED", readBy: .queue,
        "1 skips the check of Redis' own configuration, for managed servers that hide it")
    package let durability: Setting<Durability> = .choice(
        "RATCHET_DURABILITY", default: "fsync", readBy: [.ingress, .verifier, .writer, .commandLine],
        "what a 2xx promises: synced file, file synced each second, or every replica")
    package let replicas: Setting<Int> = .integer(
        "RATCHET_REPLICAS", unit: "replicas", 0...16, default: 0, readBy: .queue,
        "how many replicas must have a write with RATCHET_DURABILITY=replicated: all there are")

    let postgres = SettingTopic("Postgres")
    package let postgresConnection: Setting<String> = .parsed(
        "RATCHET_PG", "a libpq connection string (key=value pairs or postgresql://…)",
        example: "host=/run/postgresql dbname=ratchet user=ratchet",
        default: .byMode(
            production: "host=/run/postgresql dbname=ratchet user=ratchet",
            development: "host='$RATCHET_DATA/pgsock' dbname=ratchet user=ratchet"),
        readBy: .database, secrecy: .address, "the database", parse: AddressText.postgres)
    package let postgresSchema: Setting<String> = .parsed(
        "RATCHET_PG_SCHEMA", "1 to 48 of a-z, 0-9 and _, not starting with a digit", example: "ratchet",
        default: "ratchet", readBy: .database, "schema that holds every table"
    ) { text in
        let lower: (UInt8) -> Bool = { (0x61...0x7A).contains($0) || $0 == 0x5F }
        guard let first = text.utf8.first, lower(first), text.utf8.count <= 48 else { return nil }
        return text.utf8.allSatisfy { lower($0) || (0x30...0x39).contains($0) } ? text : nil
    }
    package let postgresTimeoutMilliseconds: Setting<Int> = .integer(
        "RATCHET_PG_TIMEOUT_MS", unit: "ms", 100...600_000, default: 10_000, readBy: .database,
        "a statement without an answer for so long fails and its connection is closed")

    let intake = SettingTopic("Intake")
    package let ingressHost: Setting<String> = .parsed(
        "RATCHET_INGRESS_HOST", "a numeric IPv4 or IPv6 address", example: "127.0.0.1", default: "127.0.0.1",
        readBy: [.ingress, .commandLine, .stack], "address that the SDK API listens on, behind the TLS proxy"
    ) { AddressRange.bytes(of: $0) == nil ? nil : $0 }
    package let ingressPort: Setting<Int> = .integer(
        "RATCHET_INGRESS_PORT", unit: "port", 0...65_535, default: 8080, readBy: [.ingress, .commandLine, .stack],
        "port that the SDK API listens on; 0 takes a free one")
    package let consolePort: Setting<Int> = .integer(
        "RATCHET_CONSOLE_PORT", unit: "port", 0...65_535, default: 8081, readBy: [.console, .stack],
        "port that the console listens on; 0 takes a free one")
    package let ingressLoops: Setting<Int> = .integer(
        "RATCHET_INGRESS_LOOPS", unit: "loops", 1...256,
        default: .measured("the number of cores") { String(min(max(sysconf(Int32(_SC_NPROCESSORS_ONLN)), 1), 256)) },
        readBy: [.ingress], "event loops of the ingress, each a thread with its own socket")
    package let trustedProxies: Setting<[AddressRange]> = .parsed(
        "RATCHET_TRUSTED_PROXIES", "addresses and CIDR ranges with commas between, or none",
        example: "127.0.0.1,10.0.0.0/8", default: "127.0.0.1,::1", readBy: [.ingress, .commandLine],
        "proxies whose X-Forwarded-For is believed", parse: AddressRange.list)
    package let acceptTimeoutMilliseconds: Setting<Int> = .integer(
        "RATCHET_ACCEPT_TIMEOUT_MS", unit: "ms", 50...120_000, default: 5_000, readBy: [.ingress],
        "how long a call waits for Redis before it is answered 503")

    let limits = SettingTopic("Limits of callers")
    package let unattestedPerMinute: Setting<Int> = .integer(
        "RATCHET_LIMIT_UNATTESTED_PER_MINUTE", unit: "requests per minute", 0...1_000_000, default: 30,
        readBy: [.ingress], "writes of one device without a token; 0: no limit")
    package let attestedPerMinute: Setting<Int> = .integer(
        "RATCHET_LIMIT_ATTESTED_PER_MINUTE", unit: "requests per minute", 0...1_000_000, default: 240,
        readBy: [.ingress], "writes of one organization with tokens; 0: no limit")
    package let challengePerMinute: Setting<Int> = .integer(
        "RATCHET_LIMIT_CHALLENGE_PER_MINUTE", unit: "requests per minute", 0...1_000_000, default: 20,
        readBy: [.ingress], "App Attest challenges of one IPv4 address or IPv6 /64 from one ingress; 0: no limit")
    package let attestPerMinute: Setting<Int> = .integer(
        "RATCHET_LIMIT_ATTEST_PER_MINUTE", unit: "requests per minute", 0...1_000_000, default: 20,
        readBy: [.ingress], "enrolments of one IPv4 address or IPv6 /64 at one ingress; 0: no limit")
    package let addressPerMinute: Setting<Int> = .integer(
        "RATCHET_LIMIT_ADDRESS_PER_MINUTE", unit: "requests per minute", 0...1_000_000,
        default: .byMode(production: "600", development: "0"), readBy: [.ingress],
        "calls of one IPv4 address or IPv6 /64 to one ingress; 0: no limit")
    package let maxConnectionsPerAddress: Setting<Int> = .integer(
        "RATCHET_MAX_CONNECTIONS_PER_ADDRESS", unit: "connections", 0...1_000_000,
        default: .byMode(production: "1000", development: "0"), readBy: [.ingress],
        "open connections of one peer to one event loop, a proxy in front counting as one peer; 0: no limit")
    package let maxConnections: Setting<Int> = .integer(
        "RATCHET_MAX_CONNECTIONS", unit: "connections", 1...1_000_000, default: 10_000, readBy: [.ingress],
        "open connections of one event loop; the process needs as many file descriptors")

    let http = SettingTopic("HTTP server")
    package let httpMaxRequestLineBytes: Setting<Int> = .integer(
        "RATCHET_HTTP_MAX_REQUEST_LINE_BYTES", unit: "bytes", 256...65_536, default: 8_192, readBy: [.ingress],
        "longest request line")
    package let httpMaxHeaderBytes: Setting<Int> = .integer(
        "RATCHET_HTTP_MAX_HEADER_BYTES", unit: "bytes", 1_024...1_048_576, default: 16_384, readBy: [.ingress],
        "header section as a whole")
    package let httpMaxHeaders: Setting<Int> = .integer(
        "RATCHET_HTTP_MAX_HEADERS", unit: "headers", 8...10_000, default: 100, readBy: [.ingress],
        "header fields of a request")
    package let httpMaxBodyBytes: Setting<Int> = .integer(
        "RATCHET_HTTP_MAX_BODY_BYTES", unit: "bytes", 1_024...16_777_216, default: 65_536, readBy: [.ingress],
        "longest body of the SDK API; more is answered 413")
    package let httpHeaderTimeoutMilliseconds: Setting<Int> = .integer(
        "RATCHET_HTTP_HEADER_TIMEOUT_MS", unit: "ms", 100...600_000, default: 10_000, readBy: [.ingress],
        "from a request's first byte to the end of its header")
    package let httpBodyTimeoutMilliseconds: Setting<Int> = .integer(
        "RATCHET_HTTP_BODY_TIMEOUT_MS", unit: "ms", 100...600_000, default: 60_000, readBy: [.ingress],
        "from the end of the header to the end of the body")
    package let httpIdleTimeoutMilliseconds: Setting<Int> = .integer(
        "RATCHET_HTTP_IDLE_TIMEOUT_MS", unit: "ms", 100...3_600_000, default: 75_000, readBy: [.ingress],
        "a connection without a request closes; longer than the proxy keeps one, so that the proxy closes first")
    package let httpWriteTimeoutMilliseconds: Setting<Int> = .integer(
        "RATCHET_HTTP_WRITE_TIMEOUT_MS", unit: "ms", 100...600_000, default: 30_000, readBy: [.ingress],
        "a caller that doesn't read its answer for so long is cut off")
    package let httpMaxPipelined: Setting<Int> = .integer(
        "RATCHET_HTTP_MAX_PIPELINED", unit: "requests", 1...1_000, default: 16, readBy: [.ingress],
        "complete requests that wait on one connection besides the one that is worked on")

    let queue = SettingTopic("Queue")
    package let batch: Setting<Int> = .integer(
        "RATCHET_BATCH", unit: "jobs", 1...10_000, default: 1_024, readBy: .workers,
        "most jobs that a worker takes at once")
    package let retryBaseMilliseconds: Setting<Int> = .integer(
        "RATCHET_RETRY_BASE_MS", unit: "ms", 10...600_000, default: 1_000, readBy: .workers,
        "wait before the first later try of a failed job; each further one waits longer")
    package let maxAttempts: Setting<Int> = .integer(
        "RATCHET_MAX_ATTEMPTS", unit: "attempts", 1...1_000, default: 20, readBy: .workers,
        "failed attempts after which a job becomes a dead letter")

    let trust = SettingTopic("Trust")
    package let extraAppleRoots: Setting<String?> = .optional(
        "RATCHET_EXTRA_APPLE_ROOTS", SettingPath.rule, example: "/etc/ratchet/test-roots.pem",
        readBy: [.verifier, .commandLine],
        "PEM file of roots believed beside Apple's, for chains made in software; refused outside development",
        parse: SettingPath.absolute)

    let adServices = SettingTopic("Apple Ads")
    package let adServicesURL: Setting<String> = .parsed(
        "RATCHET_ADSERVICES_URL", "an https:// address (http:// in development) without a user, a query and a fragment",
        example: "https://api-adservices.apple.com/api/v1/", default: "https://api-adservices.apple.com/api/v1/",
        readBy: [.sweeper], "where AdServices tokens are exchanged", parse: AddressText.web)
    package let adServicesConcurrency: Setting<Int> = .integer(
        "RATCHET_ADSERVICES_CONCURRENCY", unit: "calls", 1...512, default: 32, readBy: [.sweeper],
        "AdServices tokens that one sweeper asks about at once")
    package let adServicesTimeScale: Setting<Int> = .integer(
        "RATCHET_ADSERVICES_TIME_SCALE", unit: "times", 1...86_400, default: 1,
        readBy: [.writer, .sweeper, .commandLine],
        "divides every delay of AdServices tokens and their 24 hours; refused outside development")

    /// Every setting in the order of the table, from the stored properties themselves: an entry can't be forgotten.
    static let settings: [any AnySetting] = Mirror(reflecting: shared).children.compactMap {
        $0.value as? any AnySetting
    }
    /// The same with headings in between.
    static let lines: [Line] = Mirror(reflecting: shared).children.compactMap { child in
        if let topic = child.value as? SettingTopic { return .topic(topic.title) }
        return (child.value as? any AnySetting).map { .entry($0.entry) }
    }

    enum Line: Sendable {
        case topic(String)
        case entry(SettingEntry)
    }
}
