package import EventLoop
package import Redis
package import Service

/// The way from a process' settings to the Redis that holds the queue.
package enum QueueConnection {
    /// Connects and checks that this Redis may be entrusted with writes.
    /// - Throws: `ServiceError`: dependency away (a retry helps) or configuration (what to type stands in it).
    package static func open(
        _ context: ServiceContext, on loop: EventLoop, connectMilliseconds: Int64
    ) async throws -> RedisClient {
        let settings = context.settings
        let address: RedisAddress
        do {
            address = try RedisAddress(settings.redisURL)
        } catch {
            throw ServiceError(.configuration, "RATCHET_REDIS_URL: \(error.message)")
        }
        let configuration = RedisClientConfiguration(
            commandTimeoutMilliseconds: Int64(settings.redisTimeoutMilliseconds), clientName: context.livenessName)
        let durability =
            RedisRequirements.Durability(rawValue: settings.durability.rawValue) ?? RedisRequirements.Durability.fsync
        let unchecked = settings.redisUnchecked
        let keys = QueueKeys(prefix: settings.keyPrefix, partitions: settings.partitions)
        return try await loop.run {
            let client = RedisClient(loop: loop, address: address, configuration: configuration)
            guard await client.waitUntilConnected(milliseconds: connectMilliseconds) else {
                var reason = "no connection within \(connectMilliseconds) ms"
                if case .disconnected(let error) = client.state { reason = error.message }
                await client.close()
                throw ServiceError(.dependencyAway, "redis is away at \(address) (RATCHET_REDIS_URL): \(reason)")
            }
            if !unchecked {
                let old = try await RedisRequirements.oldVersions(client)
                if !old.isEmpty {
                    await client.close()
                    throw ServiceError(
                        .configuration,
                        "redis \(old.joined(separator: ", ")) is too old: install redis"
                            + " \(RedisRequirements.oldestMajorVersion) or newer")
                }
                let problems = try await RedisRequirements.problems(client, durability: durability)
                if !problems.isEmpty {
                    await client.close()
                    throw ServiceError(
                        .configuration,
                        problems.map { "\($0.message); type: \($0.remedy)" }.joined(separator: "\n"))
                }
            }
            do {
                try await QueueSeed(client: client, keys: keys).checkShape()
            } catch let error as RedisError where error.code == .server("MOVED") {
                await client.close()
                throw ServiceError(
                    .configuration,
                    "RATCHET_REDIS_URL names one node of a cluster: write redis-cluster://host:port,host:port instead")
            } catch let error as QueueSeed.Mismatch {
                await client.close()
                throw ServiceError(.configuration, error.message)
            }
            return client
        }
    }
}
