internal import EventLoop
internal import Jobs
internal import Postgres
internal import RedisQueue
internal import Service
internal import Store
internal import WorkerCore
internal import WriterCore

/// ratchet-writer: the only process that writes SDK data to Postgres. It also keeps Redis' copies of what Postgres
/// knows, the app directory and the seed, copies dead letters to Postgres, and compacts what is old there.
@main
struct WriterMain {
    static func main() async {
        await ServiceMain.run(.writer) { context in
            let loop = EventLoop(name: "writer", time: context.time)
            let configuration = PostgresConfiguration(
                conninfo: context.settings.postgresConnection, schema: context.settings.postgresSchema,
                applicationName: "ratchet-writer",
                queryDeadlineMilliseconds: Int64(context.settings.postgresTimeoutMilliseconds))
            // Two connections: the app directory must not wait behind a batch.
            let writes = PostgresClient(configuration, on: loop)
            let reads = PostgresClient(configuration, on: loop)
            context.operations.addReadiness("postgres") { await Migrator.problem(reads).map { .bad($0) } ?? .good }
            let worker = try await WorkerProcess.start(context, .write, loop)
            try await fixPartitions(context, reads, loop)
            context.operations.addReadiness("intake") {
                let health = try? await loop.run {
                    await IntakeHealth(client: worker.client, keys: worker.keys).health()
                }
                return health ?? .good
            }
            let metrics = WriterMetrics(context.metrics)
            let devices = KnownDevices(client: worker.client, keys: worker.keys)
            let handler = WriteHandler(
                loop: loop, postgres: writes, devices: devices,
                adServicesTimeScale: context.settings.adServicesTimeScale
            ) { metrics.add($0) }
            let revocations = RevocationPublisher(loop: loop, devices: devices, postgres: reads, log: context.log)
            let publisher = DirectoryPublisher(
                loop: loop, client: worker.client, keys: worker.keys, postgres: reads, log: context.log)
            let copier = DeadLetterCopier(
                loop: loop, streams: DeadLetterStreams(client: worker.client, keys: worker.keys),
                partitions: worker.keys.partitions, postgres: reads, log: context.log)
            let compactor = OwnerWriteCompactor(
                loop: loop, queue: QueueStatistics(client: worker.client, keys: worker.keys),
                orders: QueueOrders(client: worker.client, keys: worker.keys), copier: copier, postgres: reads,
                log: context.log, metrics: metrics)
            let shedding = ShedKeeper(
                loop: loop, shedLevel: ShedLevel(client: worker.client, keys: worker.keys), log: context.log,
                gauge: context.metrics.gauge(
                    "ratchet_shed_level", "Intake refused for overload: 1 impressions, 2 identify too, 3 attribute too."
                ), gauges: LaneGauges(context.metrics))
            try await worker.run(
                handler,
                beside: [
                    { await publisher.runUntilCancelled() }, { await copier.runUntilCancelled() },
                    { await shedding.runUntilCancelled() }, { await revocations.runUntilCancelled() },
                    { await compactor.runUntilCancelled() },
                ])
            try await loop.run {
                writes.close()
                reads.close()
            }
        }
    }

    /// The number of partitions is fixed when an installation is made: another one would send the writes of one
    /// subject to two clocks. A database that is away is no reason not to start; Redis holds the number too.
    private static func fixPartitions(
        _ context: ServiceContext, _ postgres: PostgresClient, _ loop: EventLoop
    ) async throws {
        let wanted = String(context.settings.partitions)
        let stands = try? await loop.run {
            try await postgres.withConnection { connection throws(PostgresError) in
                try await InstallationFacts.fix("partitions", wanted, connection)
            }
        }
        if let stands, stands != wanted {
            throw ServiceError(
                .configuration,
                "RATCHET_PARTITIONS is \(wanted), this installation was made with \(stands): set RATCHET_PARTITIONS=\(stands)"
            )
        }
    }
}
