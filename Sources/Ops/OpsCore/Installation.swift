package import EventLoop
internal import Postgres
internal import Redis
internal import RedisQueue
package import Service
internal import Synchronization

/// The way to one installation's Redis and Postgres. Connections are opened when first needed, and kept.
package final class Installation: Sendable {
    package let settings: Settings
    /// Where the connections live.
    package let loop: EventLoop
    let keys: QueueKeys
    private let postgres: PostgresClient
    private let redis = Mutex<RedisClient?>(nil)

    /// An operator waits: a server that doesn't take the connection within this time counts as away.
    private static let connectMilliseconds: Int64 = 3_000

    package init(settings: Settings, loop: EventLoop) {
        self.settings = settings
        self.loop = loop
        keys = QueueKeys(prefix: settings.keyPrefix, partitions: settings.partitions)
        postgres = PostgresClient(
            PostgresConfiguration(
                conninfo: settings.postgresConnection, schema: settings.postgresSchema,
                applicationName: settings.process.rawValue, connectDeadlineMilliseconds: Self.connectMilliseconds,
                queryDeadlineMilliseconds: Int64(settings.postgresTimeoutMilliseconds)),
            on: loop)
    }

    /// Runs `body` with the connection to Postgres, on the loop.
    /// - Throws: `OpsError` for whatever `body` throws; `.dependencyAway` when there is no connection.
    func withPostgres<Value: Sendable>(
        _ body: @escaping @Sendable (PostgresConnection) async throws -> Value
    ) async throws(OpsError) -> Value {
        do {
            return try await loop.run { [postgres] in
                let outcome = try await postgres.withConnection {
                    connection async throws(PostgresError) -> Result<Value, any Error> in
                    do { return .success(try await body(connection)) } catch { return .failure(error) }
                }
                return try outcome.get()
            }
        } catch {
            throw OpsError(error)
        }
    }

    /// Runs `body` with a connected client of Redis, on the loop.
    /// - Throws: as `withPostgres`.
    func withRedis<Value: Sendable>(
        _ body: @escaping @Sendable (RedisClient) async throws -> Value
    ) async throws(OpsError) -> Value {
        do {
            let client = try redisClient()
            return try await loop.run {
                guard await client.waitUntilConnected(milliseconds: Self.connectMilliseconds) else {
                    var reason = "no connection within \(Self.connectMilliseconds) ms"
                    if case .disconnected(let error) = client.state { reason = error.message }
                    throw OpsError(.dependencyAway, "redis is away at \(client.address): \(reason)")
                }
                return try await body(client)
            }
        } catch {
            throw OpsError(error)
        }
    }

    /// As `withRedis`, for what changes the queue: a read-only replica is refused also where nothing would be written, since
    /// it may not have heard yet of what there is.
    func withPrimary<Value: Sendable>(
        _ body: @escaping @Sendable (RedisClient) async throws -> Value
    ) async throws(OpsError) -> Value {
        try await withRedis { client in
            for node in try await client.everyPrimary(["ROLE"]) {
                // A server that hides its role says itself what it does not take.
                if (try? node.reply.get())?.elements?.first?.text == "slave" {
                    throw RedisError(code: .server("READONLY"), message: "it is a replica")
                }
            }
            return try await body(client)
        }
    }

    private func redisClient() throws(RedisError) -> RedisClient {
        let address = try RedisAddress(settings.redisURL)
        return redis.withLock { slot in
            if let client = slot { return client }
            let client = RedisClient(
                loop: loop, address: address,
                configuration: RedisClientConfiguration(
                    commandTimeoutMilliseconds: Int64(settings.redisTimeoutMilliseconds),
                    clientName: settings.process.rawValue))
            slot = client
            return client
        }
    }

    /// Closes the connections; calls that run fail.
    package func close() async {
        let client = redis.withLock { slot in
            defer { slot = nil }
            return slot
        }
        if let client { await client.close() }
        _ = try? await loop.run { [postgres] in postgres.close() }
    }
}
