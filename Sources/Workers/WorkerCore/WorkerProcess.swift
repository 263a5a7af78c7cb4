package import EventLoop
package import Jobs
package import Redis
package import RedisQueue
package import Service

/// A worker as a process: connections, liveness, the loops beside the worker loop, metrics, and the order of stopping.
package struct WorkerProcess: Sendable {
    package let context: ServiceContext
    package let loop: EventLoop
    package let client: RedisClient
    package let keys: QueueKeys
    private let stage: Stage

    /// Blocking reads last a second; a reply that takes three times as long is none.
    private static let waiterTimeoutMilliseconds: Int64 = 3000
    /// How long a process waits at its start for Redis, before it says that it is away.
    private static let connectMilliseconds: Int64 = 10_000
    /// A worker whose last fetch is older is not ready.
    private static let staleFetchMilliseconds: Int64 = 15_000

    /// Connects. Call it from any task; everything else of the worker runs on `loop`.
    /// - Throws: `ServiceError` for a Redis that is away (a retry helps) or must not be used (none does).
    package static func start(_ context: ServiceContext, _ stage: Stage, _ loop: EventLoop) async throws
        -> WorkerProcess
    {
        let keys = QueueKeys(prefix: context.settings.keyPrefix, partitions: context.settings.partitions)
        let client = try await QueueConnection.open(context, on: loop, connectMilliseconds: connectMilliseconds)
        return WorkerProcess(context: context, loop: loop, client: client, keys: keys, stage: stage)
    }

    /// Works until the process must stop, then lets go of everything.
    /// - Parameters:
    ///   - handler: what the worker does with jobs.
    ///   - beside: loops that run as long as the worker, on its event loop, until cancelled.
    package func run(
        _ handler: any JobHandler, beside: [@Sendable () async -> Void] = []
    ) async throws {
        try await loop.run { try await self.runInLoop(handler, beside) }
    }

    private func runInLoop(_ handler: any JobHandler, _ beside: [@Sendable () async -> Void]) async throws {
        let waiter = RedisClient(
            loop: loop, address: client.address,
            configuration: RedisClientConfiguration(
                commandTimeoutMilliseconds: Self.waiterTimeoutMilliseconds, connectionWaitMilliseconds: 1000,
                clientName: context.livenessName, connectionPerSlot: true))
        let live = LiveProcess(name: context.livenessName, loop: loop, client: client, keys: keys)
        await live.beat()
        let source = RedisJobSource(
            loop: loop, client: client, waiter: waiter, keys: keys, stage: stage, consumer: live.name)
        let metrics = WorkerMetrics(context.metrics, stage: stage)
        let worker = Worker(
            loop: loop, source: source, handler: handler, configuration: configuration, log: context.log,
            metrics: metrics)
        addReadiness(source)
        let skew = ClockSkew(client: client, metrics: context.metrics)
        var tasks = [
            loop.spawn { await skew.runUntilCancelled() },
            loop.spawn { await source.promoteUntilCancelled() }, loop.spawn { await source.unparkUntilCancelled() },
            loop.spawn { await source.reclaimUntilCancelled() },
            loop.spawn { await metrics.copyUntilCancelled(loop: self.loop, source: source, log: self.context.log) },
        ]
        tasks += beside.map { body in loop.spawn(body) }
        let beating = loop.spawn { await live.run() }
        let working = loop.spawn { await worker.run() }

        await context.stopping()
        // Nothing new; what runs may finish; what is left goes back; the name lives to the last moment.
        worker.stop()
        await source.stopFetching()
        await working.value
        for task in tasks { task.cancel() }
        await source.release()
        beating.cancel()
        await live.end()
        await client.close()
    }

    private var configuration: Worker.Configuration {
        var configuration = Worker.Configuration()
        configuration.batch = context.settings.batch
        configuration.ladder.baseMilliseconds = Int64(context.settings.retryBaseMilliseconds)
        configuration.ladder.maxAttempts = context.settings.maxAttempts
        return configuration
    }

    private func addReadiness(_ source: RedisJobSource) {
        let loop = loop
        context.operations.addReadiness("queue") {
            let age = try? await loop.run {
                (loop.time.monotonicNanoseconds - source.lastFetchOK) / 1_000_000
            }
            guard let age else { return .bad("the event loop does not answer") }
            return age < Self.staleFetchMilliseconds
                ? .good : .bad("nothing was fetched or waited for since \(age) ms")
        }
    }
}
