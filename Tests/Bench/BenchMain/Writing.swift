import EventLoop
import Jobs
import Postgres
import Service
import Store
import WorkerCore
import WriterCore

/// Jobs joined and committed by the writer's own loop and handler, handed to it from memory.
///
/// `--postgres CONNINFO --schema NAME` a database, migrated here; `--jobs N`, `--batch N`, `--users N`,
/// `--organizations N`, `--attributes N` (one job in so many is an attribute call). The users are there before.
enum Writing: Subcommand {
    static let name = "writer"

    static func run(_ options: Options) async throws -> [String: Double] {
        let sample = SampleJobs(
            users: try options.number("users", default: 10_000),
            organizations: try options.number("organizations", default: 10),
            attributeEvery: try options.number("attributes", default: 4))
        let loop = EventLoop(name: "writer")
        let configuration = PostgresConfiguration(
            conninfo: try options.text("postgres"), schema: try options.text("schema"),
            queryDeadlineMilliseconds: 60_000)
        let postgres = PostgresClient(configuration, on: loop)
        let batch = try options.number("batch", default: 1_024)
        let count = try options.number("jobs", default: 100_000)
        try await loop.run { try await migrate(configuration, loop) }
        let process = try await loop.run { try await backend(postgres) }
        // Before the clock runs: every user once, so that the measured jobs find what jobs usually find.
        _ = try await work(sample.fetched(0..<min(sample.users, count)), batch: 1_024, loop, postgres)
        let jobs = sample.fetched(sample.users..<(sample.users + count))
        let walBefore = try await loop.run { try await position(postgres) }
        let (own, others) = (CPUTime.ownNanoseconds, CPUTime.nanoseconds(of: process))
        let began = loop.time.monotonicNanoseconds
        let rows = try await work(jobs, batch: batch, loop, postgres)
        let seconds = Double(loop.time.monotonicNanoseconds - began) / 1e9
        let walAfter = try await loop.run { try await position(postgres) }
        let figures = [
            "jobs": Double(count), "rows": Double(rows), "seconds": seconds,
            "writerSeconds": Double(CPUTime.ownNanoseconds - own) / 1e9,
            "backendSeconds": Double(CPUTime.nanoseconds(of: process) - others) / 1e9,
            "walBytes": Double(walAfter - walBefore),
        ]
        try await loop.run { postgres.close() }
        loop.stop()
        return figures
    }

    /// Runs the worker's loop until all jobs are settled.
    /// - Returns: the rows that were inserted or updated, by what Postgres says of each statement.
    private static func work(
        _ jobs: [FetchedJob], batch: Int, _ loop: EventLoop, _ postgres: PostgresClient
    ) async throws -> Int {
        try await loop.run {
            let rows = RowCount()
            let handler = WriteHandler(loop: loop, postgres: postgres) { rows.add($0) }
            let source = PreparedSource(jobs)
            var configuration = Worker.Configuration()
            configuration.batch = batch
            let worker = Worker(
                loop: loop, source: source, handler: handler, configuration: configuration,
                log: Log(process: "bench", level: .warn, time: loop.time),
                metrics: WorkerMetrics(Metrics(), stage: .write))
            source.whenSettled = { worker.stop() }
            await worker.run()
            guard source.failed == 0 else { throw Options.Problem(description: "\(source.failed) jobs were not done") }
            return rows.sum
        }
    }

    private static func migrate(_ configuration: PostgresConfiguration, _ loop: EventLoop) async throws {
        let connection = try await PostgresConnection.connect(configuration, on: loop)
        defer { connection.close() }
        _ = try await Migrator.migrate(connection)
    }

    /// The process of the client's backend.
    private static func backend(_ postgres: PostgresClient) async throws -> Int64 {
        try await postgres.withConnection { connection throws(PostgresError) in
            try await connection.query("SELECT pg_backend_pid()::bigint AS pid").first?.int64("pid") ?? 0
        }
    }

    /// How much was ever written to the write-ahead log, in bytes.
    private static func position(_ postgres: PostgresClient) async throws -> Int64 {
        try await postgres.withConnection { connection throws(PostgresError) in
            try await connection.query("SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint AS bytes").first?
                .int64("bytes") ?? 0
        }
    }
}

/// `@unchecked Sendable`: touched on the loop alone, where the handler runs.
private final class RowCount: @unchecked Sendable {
    private(set) var sum = 0

    func add(_ report: ApplyReport) {
        sum += report.customers + report.purchases + report.transactions + report.ownerWrites
    }
}

/// Hands out what it was given, and ends when all of that is settled.
///
/// `@unchecked Sendable`: touched on the loop alone, as a `JobSource` is.
private final class PreparedSource: JobSource, @unchecked Sendable {
    private let jobs: [FetchedJob]
    private var next = 0
    private var settled = 0
    private(set) var failed = 0
    var whenSettled: () -> Void = {}
    private var fetching: UnsafeContinuation<Void, Never>?

    init(_ jobs: [FetchedJob]) { self.jobs = jobs }

    func fetch(atMost count: Int) async -> [FetchedJob] {
        guard next < jobs.count else {
            if settled < jobs.count { await withUnsafeContinuation { fetching = $0 } }
            return []
        }
        let taken = jobs[next..<min(next + count, jobs.count)]
        next += taken.count
        return Array(taken)
    }

    func startAlone(_ job: FetchedJob) async -> Int? { 1 }
    func forgetStart(_ job: FetchedJob) async {}
    func answer(_ job: FetchedJob, _ payload: [UInt8]) async {}

    func settle(_ settlements: [Settlement]) async {
        settled += settlements.count
        for settlement in settlements {
            if case .done = settlement.action { continue }
            failed += 1
        }
        guard settled == jobs.count else { return }
        whenSettled()
        fetching?.resume()
        fetching = nil
    }
}

extension SampleJobs {
    /// Jobs as a worker gets them, a microsecond apart up to now: each later than all that came before it.
    fileprivate func fetched(_ numbers: Range<Int>) -> [FetchedJob] {
        let end = SystemTime().wallMicroseconds
        return numbers.map { number in
            let write = write(number, stamp: end - Int64(numbers.upperBound - number))
            let (kind, payload) = Self.job(write)
            return FetchedJob(
                lane: .write, partition: 0, entryID: "\(write.stamp)-0",
                header: JobHeader(
                    kind: kind, version: 1, stamp: write.stamp, attempts: 0, organization: write.organization,
                    enqueuedMilliseconds: write.stamp / 1_000),
                payload: payload, deliveries: 1)
        }
    }
}
