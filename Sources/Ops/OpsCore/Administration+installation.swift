package import RedisQueue
package import Store

extension Administration {
    package struct MigrationResult: Equatable, Sendable {
        /// The numbers that this call applied, in order.
        package let applied: [Int]
        package let state: MigrationState
        /// The highest migration applied now.
        package var current: Int { state.current }
    }

    /// Brings the schema to what this program needs, and creates it when it is absent.
    /// - Parameter progress: told of each migration once it stands, on the installation's loop.
    /// - Throws: `.configuration` for a history that people must look at, `.dependencyAway` when Postgres is away.
    package func migrate(
        progress: @escaping @Sendable (Int) -> Void = { _ in }
    ) async throws(OpsError) -> MigrationResult {
        try await installation.withPostgres { connection in
            let applied = try await Migrator.migrate(connection, progress: progress)
            return MigrationResult(applied: applied, state: try await Migrator.state(connection))
        }
    }

    /// Every lane of the queue, in `Lane` order.
    package func queues() async throws(OpsError) -> [LaneStatistics] {
        let keys = installation.keys
        return try await installation.withRedis { client in
            try await QueueStatistics(client: client, keys: keys).lanes()
        }
    }
}
