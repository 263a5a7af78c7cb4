import AppleAds
import Bytes
import EventLoop
import HTTPClient
import Postgres
import Service
import Store
import SweeperCore
import Synchronization
import TestSupport
import Testing
import Wire

/// A sweep over a schema of its own and a local server in Apple's place, in virtual time unless said otherwise.
final class SweepRig: Sendable {
    static let start: Int64 = 1_796_000_000_000_000
    static let second: Int64 = 1_000_000

    let loop = EventLoop(name: "sweep-test")
    let store: TestStore
    let clock: VirtualClock
    let apple: FakeAdServices
    let caller: HTTPCaller
    let sealer = AdServicesToken.sealer(secret: Array(repeating: 7, count: 32))
    let metrics = Metrics()
    let log = LogLines()
    private let sweepMetrics: SweepMetrics
    private let settings: Settings
    private let running = Mutex<(sweep: Sweep, task: Task<Void, Never>, clients: [PostgresClient])?>(nil)

    struct Settings: Sendable {
        var configuration = Sweep.Configuration()
        var target: (any AdServicesOutcomeTarget)?
        /// Nil is virtual time.
        var clock: (any SweepClock)?
        var deadlineMilliseconds: Int64 = 10_000
        /// How long an ask takes in virtual time.
        var secondsPerAsk: Int64 = 0
    }

    private init(_ settings: Settings, _ store: TestStore, byDefault: FakeAdServices.Step) throws {
        self.settings = settings
        self.store = store
        let clock = VirtualClock(Self.start)
        self.clock = clock
        apple = try FakeAdServices(
            clock: { clock.microseconds },
            byDefault: { _, _ in
                clock.leap(seconds: settings.secondsPerAsk)
                return byDefault
            })
        var calls = HTTPCaller.Configuration()
        calls.deadlineMilliseconds = settings.deadlineMilliseconds
        caller = HTTPCaller(calls)
        sweepMetrics = SweepMetrics(metrics)
    }

    static func run(
        _ change: (inout Settings) -> Void = { _ in }, byDefault: FakeAdServices.Step = .organic,
        _ body: @escaping @Sendable (SweepRig) async throws -> Void
    ) async throws {
        var settings = Settings()
        // No token comes by itself here, so nothing is found by looking often.
        settings.configuration.pollMicroseconds = 3_600 * Self.second
        change(&settings)
        let rig = try SweepRig(settings, try await TestStore.make(), byDefault: byDefault)
        try await body(rig)
        await rig.stopSweep()
        rig.caller.close()
        await rig.apple.stop()
        rig.loop.stop()
    }

    // MARK: - The sweep

    func startSweep() async throws {
        let configuration = try TestPostgres.shared.get().configuration(schema: store.schema)
        try await loop.run { [self] in
            let clients = [PostgresClient(configuration, on: loop), PostgresClient(configuration, on: loop)]
            let sweep = Sweep(
                loop: loop, configuration: settings.configuration,
                parts: Sweep.Parts(
                    clock: settings.clock ?? clock, endpoint: AppleEndpoint(caller: caller, url: apple.url),
                    sealer: sealer, claims: clients[0], results: clients[1], target: settings.target,
                    log: Log(process: "test", level: .debug, time: SystemTime(), sink: log), metrics: sweepMetrics))
            let task = loop.spawn { await sweep.run() }
            running.withLock { $0 = (sweep, task, clients) }
        }
    }

    /// Orders the stop, and returns once the sweep knows of it.
    func orderStop() async throws {
        guard let sweep = running.withLock({ $0?.sweep }) else { return }
        try await loop.run { sweep.stop() }
    }

    /// What SIGTERM does.
    func stopSweep() async {
        guard
            let (sweep, task, clients) = running.withLock({ running in
                defer { running = nil }
                return running
            })
        else { return }
        loop.execute { sweep.stop() }
        await task.value
        loop.execute { for client in clients { client.close() } }
    }

    /// Runs the sweep in virtual time up to so many seconds after the start.
    func run(untilSeconds seconds: Int64) async throws {
        if running.withLock({ $0 == nil }) { try await startSweep() }
        await clock.run(until: Self.start + seconds * Self.second)
    }

    func health() async throws -> Health? {
        guard let sweep = running.withLock({ $0?.sweep }) else { return nil }
        return try await loop.run { sweep.health() }
    }

    func metric(_ line: String) -> Double? {
        metrics.exposition().split(separator: "\n").first { $0.hasPrefix(line + " ") }
            .flatMap { Double($0.dropFirst(line.count + 1)) }
    }

    // MARK: - Tokens

    /// Adds a token as the writer does, due five seconds after it was received.
    /// - Parameters:
    ///   - token: its text, by which the server is scripted; the install's id unless said otherwise.
    ///   - seconds: after the start.
    func receive(
        _ installs: String..., token: String? = nil, atSeconds seconds: Int64 = 0, callback: String? = nil,
        sealed: [UInt8]? = nil
    ) async throws {
        for install in installs {
            let text = sealer.seal(
                Array((token ?? install).utf8),
                context: AdServicesToken.context(organization: "o", bundleID: "com.example.app", subject: install))
            let stamp = Self.start + seconds * Self.second
            let bytes = sealed ?? text
            try await store.withConnection { connection in
                _ = try await connection.query(
                    """
                    INSERT INTO adservices_tokens (
                        organization, bundle_id, subject_kind, subject, stamp, sealed_token, callback, due_at,
                        environment, attested)
                    VALUES ('o', 'com.example.app', 'install', $1, $2, $3, $4, $5, 'Production', false)
                    """,
                    [
                        .text(install), .int64(stamp), .bytes(bytes), .text(callback),
                        .int64(stamp + 5 * Self.second),
                    ])
            }
        }
    }

    /// A row as the tests look at it.
    struct Row: Equatable, Sendable {
        var state: String
        var attempts: Int64
        var asks: Int64
        var lastStatus: Int64?
        var holdsToken: Bool
        var isClaimed: Bool
        var campaign: Int64?
        var keyword: Int64?
        /// Seconds after the start; of a claimed one the end of its lease.
        var due: Int64?
        var ended: Int64?
        var payload: String?
    }

    func row(_ install: String) async throws -> Row {
        try await store.withConnection { connection in
            let result = try await connection.query(
                "SELECT * FROM adservices_tokens WHERE subject = $1", [.text(install)])
            let row = try #require(result.first)
            return Row(
                state: try row.string("state"), attempts: try row.int64("attempts"), asks: try row.int64("asks"),
                lastStatus: try row.optionalInt64("last_status"),
                holdsToken: try row.optionalBytes("sealed_token") != nil,
                isClaimed: try row.optionalBytes("lease") != nil, campaign: try row.optionalInt64("campaign_id"),
                keyword: try row.optionalInt64("keyword_id"),
                due: try (row.optionalInt64("lease_end") ?? row.optionalInt64("due_at")).map {
                    ($0 - Self.start) / Self.second
                },
                ended: try row.optionalInt64("ended_at").map { ($0 - Self.start) / Self.second },
                payload: try row.optionalString("payload"))
        }
    }

    /// When a token was asked about, seconds after the start.
    func asks(_ token: String) -> [Int64] { apple.asks(token).map { ($0 - Self.start) / Self.second } }

    func execute(_ sql: String) async throws {
        try await store.withConnection { connection in _ = try await connection.execute(sql) }
    }
}

/// Keeps log lines.
final class LogLines: LogSink {
    private let lines = Mutex<[String]>([])
    func write(_ line: [UInt8]) -> Bool {
        lines.withLock { $0.append(String(decoding: line, as: UTF8.self)) }
        return true
    }
    var all: [String] { lines.withLock { $0 } }
}
