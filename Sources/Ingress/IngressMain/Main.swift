internal import Bytes
internal import EventLoop
internal import HTTP
internal import IngressCore
internal import Redis
internal import RedisQueue
internal import Service
internal import Wire

/// ratchet-ingress: one event loop per core, each with its own listening socket and Redis connection.
@main
struct IngressProcess {
    /// How long the process waits at its start for Redis.
    private static let connectMilliseconds: Int64 = 10_000
    private static let secretBytes = 32

    static func main() async {
        await ServiceMain.run(.ingress) { context in
            let addresses = AddressGuard(perMinute: context.settings.addressPerMinute)
            let limits = CallLimits(
                unattestedPerMinute: context.settings.unattestedPerMinute,
                attestedPerMinute: context.settings.attestedPerMinute,
                challenges: AddressGuard(perMinute: context.settings.challengePerMinute),
                enrolments: AddressGuard(perMinute: context.settings.attestPerMinute))
            // Without one, as development may be, challenges are known to the process that gave them out, and nobody
            // can open AdServices tokens.
            let secret = context.settings.secret ?? Secrets.random(secretBytes)
            if context.settings.secret == nil {
                context.log.warn("RATCHET_SECRET is not set: AdServices tokens taken now can't be sent to Apple")
            }
            var loops: [IngressLoop] = []
            var clients: [RedisClient] = []
            let count = max(1, context.settings.ingressLoops)
            for index in 0..<count {
                let loop = EventLoop(name: "ingress-\(index)", time: context.time)
                let client = try await QueueConnection.open(
                    context, on: loop, connectMilliseconds: connectMilliseconds)
                let writes = writesClient(client, context.settings)
                clients += writes === client ? [client] : [client, writes]
                loops.append(
                    try await loop.run {
                        ingressLoop(loop, client, writes, context, addresses, limits, secret, index, count)
                    })
            }
            let parts = loops
            let connections = clients
            context.operations.addReadiness("redis") { await redisHealth(connections) }
            let keys = QueueKeys(prefix: context.settings.keyPrefix, partitions: context.settings.partitions)
            let first = clients[0]
            context.operations.addReadiness("intake") {
                let health = try? await first.loop.run { await IntakeHealth(client: first, keys: keys).health() }
                return health ?? .good
            }
            context.operations.addReadiness("directory") { await directoryHealth(parts) }
            for part in parts { context.operations.addLiveness(of: part.loop, "loop") }
            // One loop's look is enough: all use the same Redis.
            let skew = ClockSkew(client: clients[0], metrics: context.metrics)
            let watching = clients[0].loop.spawn { await skew.runUntilCancelled() }
            let metrics = IngressMetrics(context.metrics)
            context.loop.spawn { await metrics.copyUntilCancelled(parts, on: context.loop) }

            var port = context.settings.ingressPort
            for part in parts {
                let wanted = port
                do {
                    // Port 0 lets the kernel choose once; the other loops share what it chose.
                    port = try await part.loop.run {
                        try await part.start(host: context.settings.ingressHost, port: wanted)
                    }
                } catch let error as HTTPServerError {
                    throw ServiceError(
                        .configuration,
                        "cannot listen on \(context.settings.ingressHost):\(wanted): \(error)")
                }
            }
            context.log.info("listening", ["host": context.settings.ingressHost, "port": port])

            await context.stopping()
            watching.cancel()
            await withTaskGroup(of: Void.self) { group in
                for part in parts {
                    group.addTask {
                        try? await part.loop.run {
                            await part.stop(graceMilliseconds: Int64(context.settings.stopGraceMilliseconds) / 2)
                        }
                    }
                }
            }
            for client in connections { await client.close() }
        }
    }

    /// Waiting for replicas holds up a connection: the app directory keeps its own then, and in a cluster each partition
    /// has one.
    private static func writesClient(_ client: RedisClient, _ settings: Settings) -> RedisClient {
        guard settings.durability == .replicated else { return client }
        var configuration = client.configuration
        configuration.connectionPerSlot = true
        return RedisClient(loop: client.loop, address: client.address, configuration: configuration)
    }

    private static func ingressLoop(
        _ loop: EventLoop, _ client: RedisClient, _ writes: RedisClient, _ context: ServiceContext,
        _ addresses: AddressGuard, _ limits: CallLimits, _ secret: [UInt8], _ index: Int, _ loopCount: Int
    ) -> IngressLoop {
        let settings = context.settings
        let keys = QueueKeys(prefix: settings.keyPrefix, partitions: settings.partitions)
        var intake = RedisJobSink.Configuration()
        intake.timeoutMilliseconds = Int64(settings.acceptTimeoutMilliseconds)
        if settings.durability == .replicated { intake.replicas = settings.replicas }
        let sink = RedisJobSink(loop: loop, client: writes, keys: keys, configuration: intake)
        let directory = DirectoryWatcher(loop: loop, published: PublishedDirectory(client: client, keys: keys))
        let drops = CountForwarder(loop: loop, store: PendingCounts(client: client, key: keys.unresolved))
        let enrolments = CountForwarder(loop: loop, store: PendingCounts(client: client, key: keys.enrolments))
        // Each loop hears its own answers.
        let asker = Asker(
            loop: loop, client: client, sink: sink, keys: keys, process: "\(context.livenessName).\(index)")
        let devices = DeviceTokens(loop: loop, client: client, keys: keys, asker: asker)
        let handler = SDKHandler(
            SDKHandler.Dependencies(
                loop: loop, sink: sink, directory: directory, drops: drops, enrolments: enrolments,
                addresses: addresses,
                clients: ClientAddress(trustedProxies: settings.trustedProxies),
                addressHash: AddressHash(secret: secret), log: context.log,
                devices: devices, challenges: Challenges(secret: secret),
                sealer: AdServicesToken.sealer(secret: secret), asker: asker, limits: limits))
        var http = settings.httpServerConfiguration
        http.failure = SDKHandler.failure
        http.maxConnections = max(1, http.maxConnections / loopCount)
        return IngressLoop(
            loop: loop, sink: sink, directory: directory, drops: drops, enrolments: enrolments,
            devices: devices, asker: asker, handler: handler, http: http)
    }

    private static func redisHealth(_ clients: [RedisClient]) async -> Health {
        for client in clients {
            let answered = try? await client.loop.run {
                try await client.command(["PING"], timeoutMilliseconds: 1000)
            }
            if answered == nil { return .bad("redis does not answer") }
        }
        return .good
    }

    private static func directoryHealth(_ loops: [IngressLoop]) async -> Health {
        for part in loops {
            let known = try? await part.loop.run { part.directory.current != nil }
            if known != true { return .bad("the app directory is not known: is a writer running?") }
        }
        return .good
    }
}
