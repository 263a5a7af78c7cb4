import EventLoop
import Foundation
import HTTP
import IngressCore
import Jobs
import Redis
import RedisQueue
import Service
import TestSupport
import Testing
import Wire

/// Ingress loops over real sockets on a queue of their own in a real Redis, for the length of one test.
struct IngressRig: Sendable {
    struct Options: Sendable {
        /// Nil is the server that all tests share; a test of faults brings its own.
        var redis: TestRedis?
        var loops = 1
        /// True for loops of one process; false for processes of their own, each on its port.
        var sharesPort = false
        var time: any TimeSource = SystemTime()
        var partitions = 2
        /// Nil publishes no directory.
        var apps: [AppDirectory.App]? = [IngressRig.demo]
        var isSeeded = true
        /// 0 for no limit, as of addresses.
        var unattestedPerMinute = 0
        var attestedPerMinute = 0
        var addressPerMinute = 0
        var challengePerMinute = 0
        var attestPerMinute = 0
        var trustedProxies: [AddressRange] = []
        var acceptTimeoutMilliseconds: Int64 = 10_000
        var http = HTTPServerConfiguration()
    }

    /// One loop, with what lives on it.
    struct Part: Sendable {
        let loop: EventLoop
        let client: RedisClient
        let ingress: IngressLoop
        let port: Int
    }

    static let secret = "a secret of thirty-two characters"
    static let bundle = "com.example.app"
    /// A token of the right form that is nobody's.
    static let nobodysToken = "dt_" + String(repeating: "A", count: 43)
    static let demo = app("demo", bundle)

    static func app(_ organization: String, _ bundle: String, _ store: PurchaseStore = .appStore) -> AppDirectory.App {
        AppDirectory.App(
            organization: organization, id: "app_000000000000000000000001", bundleID: bundle, store: store,
            team: store == .appStore ? "ABCDE12345" : "")
    }

    let redis: TestRedis
    let keys: QueueKeys
    let parts: [Part]
    /// The test's own way to Redis; it follows the real clock whatever the ingress follows.
    let control: RedisClient

    static func run(
        _ configure: (inout Options) -> Void = { _ in }, _ body: (IngressRig) async throws -> Void
    ) async throws {
        var options = Options()
        options.http.lingerTimeoutMilliseconds = 500
        // A client of a busy machine may be slow to ask; tests of the time-out set their own.
        options.http.headerTimeoutMilliseconds = 120_000
        configure(&options)
        let rig = try await IngressRig(options)
        let result = await Result { try await body(rig) }
        await rig.close()
        try result.get()
    }

    /// `run` on a Redis of the test's own, which may be stopped, frozen and flushed.
    static func runAlone(
        _ redisOptions: TestRedis.Options = .init(), _ configure: (inout Options) -> Void = { _ in },
        _ body: (IngressRig) async throws -> Void
    ) async throws {
        let redis = try await TestRedis.start(redisOptions)
        let result = await Result {
            try await run(
                {
                    $0.redis = redis
                    configure(&$0)
                }, body)
        }
        redis.thaw()
        await redis.remove()
        try result.get()
    }

    private init(_ options: Options) async throws {
        if let own = options.redis { redis = own } else { redis = try await TestRedis.shared() }
        let redis = redis
        keys = QueueKeys(prefix: redis.keyPrefix(), partitions: options.partitions)
        let controlLoop = EventLoop(name: "rig-control")
        control = RedisClient(
            loop: controlLoop, address: redis.address,
            configuration: RedisClientConfiguration(connectionWaitMilliseconds: 20_000))
        let (control, keys) = (control, keys)
        if options.isSeeded { try await controlLoop.run { try await QueueSeed(client: control, keys: keys).seed() } }
        // What a writer would have answered before: no worker runs here.
        try await controlLoop.run {
            _ = try await KnownDevices(client: control, keys: keys)
                .remember(DeviceTokens.hash(of: Self.nobodysToken), DeviceFacts.encode(nil))
        }
        if let apps = options.apps {
            try await controlLoop.run {
                _ = try await PublishedDirectory(client: control, keys: keys)
                    .publish(version: 1, body: AppDirectory.encode(apps))
            }
        }
        // One guard a process: loops that share a port are of one.
        let addresses = AddressGuard(perMinute: options.addressPerMinute)
        var parts: [Part] = []
        for index in 0..<options.loops {
            let loop = EventLoop(name: "rig-\(index)", time: options.time)
            let wanted = options.sharesPort ? parts.first?.port ?? 0 : 0
            parts.append(
                try await loop.run {
                    let client = RedisClient(loop: loop, address: redis.address)
                    try #require(await client.waitUntilConnected(milliseconds: 20_000))
                    let ingress = Self.ingress(
                        options, loop, client, keys,
                        options.sharesPort ? addresses : AddressGuard(perMinute: options.addressPerMinute))
                    let port = try await ingress.start(host: "127.0.0.1", port: wanted)
                    return Part(loop: loop, client: client, ingress: ingress, port: port)
                })
        }
        self.parts = parts
    }

    private static func ingress(
        _ options: Options, _ loop: EventLoop, _ client: RedisClient, _ keys: QueueKeys, _ addresses: AddressGuard
    ) -> IngressLoop {
        var intake = RedisJobSink.Configuration()
        intake.timeoutMilliseconds = options.acceptTimeoutMilliseconds
        let sink = RedisJobSink(loop: loop, client: client, keys: keys, configuration: intake)
        let directory = DirectoryWatcher(loop: loop, published: PublishedDirectory(client: client, keys: keys))
        let drops = CountForwarder(loop: loop, store: PendingCounts(client: client, key: keys.unresolved))
        let enrolments = CountForwarder(loop: loop, store: PendingCounts(client: client, key: keys.enrolments))
        let asker = Asker(
            loop: loop, client: client, sink: sink, keys: keys, process: "rig-\(UUID().uuidString.prefix(8))")
        let devices = DeviceTokens(loop: loop, client: client, keys: keys, asker: asker)
        let handler = SDKHandler(
            SDKHandler.Dependencies(
                loop: loop, sink: sink, directory: directory, drops: drops, enrolments: enrolments,
                addresses: addresses,
                clients: ClientAddress(trustedProxies: options.trustedProxies),
                addressHash: AddressHash(secret: Array(secret.utf8)),
                log: Log(process: "test", level: .error, time: SystemTime(), sink: MemoryLogSink()),
                devices: devices, challenges: Challenges(secret: Array(secret.utf8)),
                sealer: AdServicesToken.sealer(secret: Array(secret.utf8)), asker: asker,
                limits: CallLimits(
                    unattestedPerMinute: options.unattestedPerMinute, attestedPerMinute: options.attestedPerMinute,
                    challenges: AddressGuard(perMinute: options.challengePerMinute),
                    enrolments: AddressGuard(perMinute: options.attestPerMinute))))
        var http = options.http
        http.failure = SDKHandler.failure
        return IngressLoop(
            loop: loop, sink: sink, directory: directory, drops: drops, enrolments: enrolments,
            devices: devices, asker: asker, handler: handler, http: http)
    }

    private func close() async {
        for part in parts {
            // First, so that nothing waits for a Redis that the test has stopped.
            await part.client.close()
            try? await part.loop.run { await part.ingress.stop(graceMilliseconds: 0) }
            part.loop.stop()
        }
        await control.close()
        control.loop.stop()
    }

    // MARK: - Redis

    func publish(version: Int64, _ apps: [AppDirectory.App]) async throws {
        let stands = try await control.loop.run {
            try await PublishedDirectory(client: control, keys: keys)
                .publish(version: version, body: AppDirectory.encode(apps))
        }
        #expect(stands == version)
    }

    func seed() async throws {
        try await control.loop.run { try await QueueSeed(client: control, keys: keys).seed() }
    }

    /// Counts of dropped writes that have reached Redis.
    func unresolved() async throws -> [String: Int64] {
        try await control.loop.run { try await PendingCounts(client: control, key: keys.unresolved).all() }
    }

    /// Steps of enrolments that have reached Redis, without their day.
    func enrolments() async throws -> [String: Int64] {
        let counts = try await control.loop.run {
            try await PendingCounts(client: control, key: keys.enrolments).all()
        }
        return Dictionary(
            counts.map { (String($0.key.drop { $0 != "|" }.dropFirst()), $0.value) }, uniquingKeysWith: +)
    }

    @discardableResult
    func command(_ arguments: [RedisArgument]) async throws -> RedisValue {
        try await control.loop.run { try await control.command(arguments) }
    }

    /// One entry of a lane's stream.
    struct Job: Sendable {
        let partition: Int
        let header: JobHeader
        let payload: [UInt8]
    }

    /// All entries of a lane, partition by partition, in the stream's order.
    func jobs(_ lane: Lane) async throws -> [Job] {
        var jobs: [Job] = []
        for partition in 0..<keys.partitions {
            let entries = try await command(["XRANGE", .text(keys.lane(partition, lane)), "-", "+"]).elements ?? []
            for entry in entries {
                let fields = try #require(entry.elements?.last?.elements)
                try #require(fields.count == 4 && fields[0].text == "h" && fields[2].text == "p")
                jobs.append(
                    Job(
                        partition: partition,
                        header: try #require(JobHeader(encoded: fields[1].bytes ?? [])),
                        payload: try #require(fields[3].bytes)))
            }
        }
        return jobs
    }

    /// The only entry of a lane, as the writer will read it.
    func onlyIdentify() async throws -> (job: Job, write: IdentifyWrite) {
        let jobs = try await jobs(.write)
        try #require(jobs.count == 1)
        return (jobs[0], try IdentifyWrite(payload: jobs[0].payload))
    }

    func onlyAttribute(_ lane: Lane) async throws -> (job: Job, write: AttributeWrite) {
        let jobs = try await jobs(lane)
        try #require(jobs.count == 1)
        return (jobs[0], try AttributeWrite(payload: jobs[0].payload))
    }

    /// Entries of all lanes.
    func jobCount() async throws -> Int {
        var count = 0
        for lane in Lane.allCases { count += try await jobs(lane).count }
        return count
    }

    // MARK: - HTTP

    func connect(_ part: Int = 0, timeoutMilliseconds: Int = 20_000) async throws -> RawHTTPClient {
        try await RawHTTPClient.connect(port: parts[part].port, timeoutMilliseconds: timeoutMilliseconds)
    }

    /// The text of a POST with its Content-Length.
    static func request(_ path: String, _ body: String, _ headers: [(String, String)] = []) -> String {
        let lines = headers.map { "\($0): \($1)\r\n" }.joined()
        return "POST \(path) HTTP/1.1\r\nHost: sdk.test\r\nContent-Type: application/json\r\n\(lines)"
            + "Content-Length: \(body.utf8.count)\r\n\r\n\(body)"
    }

    /// Posts on a connection of its own.
    func post(
        _ path: String, _ body: String, _ headers: [(String, String)] = [], part: Int = 0
    ) async throws -> RawHTTPClient.Response {
        try await connect(part).exchange(Self.request(path, body, headers))
    }

    func identify(
        _ body: String, _ headers: [(String, String)] = [], part: Int = 0
    ) async throws -> RawHTTPClient.Response {
        try await post(SDKRoute.identify.path, body, headers, part: part)
    }

    func attribute(
        _ body: String, _ headers: [(String, String)] = [], part: Int = 0
    ) async throws -> RawHTTPClient.Response {
        try await post(SDKRoute.attribute.path, body, headers, part: part)
    }

    func adServices(
        _ body: String, _ headers: [(String, String)] = [], part: Int = 0
    ) async throws -> RawHTTPClient.Response {
        try await post(SDKRoute.adServices.path, body, headers, part: part)
    }

    /// An identify body; `more` is further members with their leading comma.
    static func identifyBody(_ user: String = "user_42", bundle: String = bundle, more: String = "") -> String {
        #"{"appUserId":"\#(user)","bundleId":"\#(bundle)"\#(more)}"#
    }

    static func attributeBody(
        _ user: String = "user_42", transaction: String = "2000000123456789", bundle: String = bundle,
        more: String = ""
    ) -> String {
        #"{"appUserId":"\#(user)","bundleId":"\#(bundle)","originalTransactionId":"\#(transaction)"\#(more)}"#
    }

    /// A token of the form that Apple's have.
    static let adServicesToken = String(repeating: "Qk9H+/aZ", count: 70)

    static func adServicesBody(
        _ install: String = "1B7A2C00-0000-4000-8000-00000000000A", token: String = adServicesToken,
        bundle: String = bundle, more: String = ""
    ) -> String {
        #"{"bundleId":"\#(bundle)","installId":"\#(install)","token":"\#(token)"\#(more)}"#
    }

    // MARK: - Waiting

    /// Waits until something is so.
    func wait(
        _ what: Comment, sourceLocation: SourceLocation = #_sourceLocation,
        until condition: () async throws -> Bool
    ) async throws {
        let clock = ContinuousClock()
        let deadline = clock.now + .seconds(20)
        while try await !condition() {
            try #require(clock.now < deadline, what, sourceLocation: sourceLocation)
            await control.loop.sleep(milliseconds: 2)
        }
    }

    /// The version of the directory that a loop decides by.
    func directoryVersion(_ part: Int = 0) async throws -> Int64? {
        let part = parts[part]
        return try await part.loop.run { part.ingress.directory.current?.version }
    }

    func counters(_ part: Int = 0) async throws -> IngressCounters {
        let part = parts[part]
        return try await part.loop.run { part.ingress.handler.counters }
    }

    func httpCounters(_ part: Int = 0) async throws -> HTTPServerCounters {
        let part = parts[part]
        return try await part.loop.run { part.ingress.server.counters }
    }
}

extension Result where Failure == any Error {
    init(_ body: () async throws -> Success) async {
        do { self = .success(try await body()) } catch { self = .failure(error) }
    }
}
