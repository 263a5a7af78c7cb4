import EventLoop
import Jobs
import Redis
import RedisQueue
import Store

/// Puts identify jobs (and attribute calls) into the queue by the ingress' own intake. `--redis ADDRESS --prefix TEXT
/// --partitions N`, seeded here; `--jobs N --first N` the jobs of these numbers, `--users N --organizations N
/// --attributes N`; `--unique 1` gives each identify an attribute, and each attribute call a purchase, of its own.
enum Enqueue: Subcommand {
    static let name = "enqueue"
    /// As many as the intake takes at once, but for some.
    private static let atOnce = 4_096

    static func run(_ options: Options) async throws -> [String: Double] {
        var sample = SampleJobs(
            users: try options.number("users", default: 10_000),
            organizations: try options.number("organizations", default: 10),
            attributeEvery: try options.number("attributes", default: 0))
        sample.isUnique = try options.number("unique", default: 0) == 1
        let (jobs, first) = (try options.number("jobs", default: 10_000), try options.number("first", default: 0))
        let keys = QueueKeys(
            prefix: options.text("prefix", default: "ratchet:"),
            partitions: try options.number("partitions", default: 16))
        let address = try RedisAddress(options.text("redis"))
        let loop = EventLoop(name: "enqueue")
        defer { loop.stop() }
        let made = sample
        return try await loop.run {
            let client = RedisClient(loop: loop, address: address, configuration: RedisClientConfiguration())
            guard await client.waitUntilConnected(milliseconds: 10_000) else {
                throw Options.Problem(description: "redis is away at \(address)")
            }
            try await QueueSeed(client: client, keys: keys).seed()
            var configuration = RedisJobSink.Configuration()
            configuration.timeoutMilliseconds = 60_000
            let sink = RedisJobSink(loop: loop, client: client, keys: keys, configuration: configuration)
            let began = loop.time.monotonicNanoseconds
            for start in stride(from: first, to: first + jobs, by: Self.atOnce) {
                var accepting: [Task<Void, Never>] = []
                for number in start..<min(start + Self.atOnce, first + jobs) {
                    accepting.append(loop.spawn { await accept(number, made, sink) })
                }
                for task in accepting { await task.value }
            }
            let accepted = sink.accepted
            let seconds = Double(loop.time.monotonicNanoseconds - began) / 1e9
            await client.close()
            guard accepted == jobs else {
                throw Options.Problem(description: "only \(accepted) of \(jobs) jobs were accepted")
            }
            return ["jobs": Double(jobs), "seconds": seconds]
        }
    }

    private static func accept(_ number: Int, _ sample: SampleJobs, _ sink: RedisJobSink) async {
        let write = sample.write(number, stamp: 1)
        let (kind, payload) = SampleJobs.job(write)
        _ = await sink.accept(
            NewJob(
                kind: kind, lane: .write, organization: write.organization,
                subject: SampleJobs.appUserID(sample.user(ofJob: number)), payload: payload))
    }
}
