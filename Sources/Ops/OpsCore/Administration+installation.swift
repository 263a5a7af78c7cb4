internal import EventLoop
internal import Jobs
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
    /// - Returns: `lettersInPostgres`: whether `dead` counts the open letters there too; else, when Postgres didn't answer
    ///   at once, only those that Redis still holds.
    package func queues() async throws(OpsError) -> (lanes: [LaneStatistics], lettersInPostgres: Bool) {
        let keys = installation.keys
        var lanes = try await installation.withRedis { client in
            try await QueueStatistics(client: client, keys: keys).lanes()
        }
        guard let letters = await openLetters() else { return (lanes, false) }
        // What died this second lies only in Redis.
        for index in lanes.indices { lanes[index].dead = max(lanes[index].dead, letters[lanes[index].lane.name] ?? 0) }
        return (lanes, true)
    }

    /// A look at the queue must not wait for a Postgres that is away.
    private static let lettersMilliseconds: Int64 = 150

    /// Open letters by lane; nil when Postgres does not say so in time.
    private func openLetters() async -> [String: Int64]? {
        let (answers, continuation) = AsyncStream<[String: Int64]?>.makeStream()
        let (installation, loop) = (installation, installation.loop)
        Task {
            continuation.yield(try? await installation.withPostgres { try await DeadLetters.countByLane($0) })
        }
        let deadline = Task {
            try? await loop.run { await loop.sleep(milliseconds: Self.lettersMilliseconds) }
            continuation.yield(nil)
        }
        defer { deadline.cancel() }
        for await answer in answers { return answer }
        return nil
    }

    /// Moves the delayed jobs of a lane back into it now, due or not, with a row in the audit log.
    /// - Parameter progress: told after each call how many of how many are moved; false stops it there.
    /// - Throws: `.usage` for no lane, `.dependencyAway`: some may be back, and calling it again helps.
    package func promote(
        _ name: String, progress: @escaping @Sendable (Int64, Int64) -> Bool = { _, _ in true }
    ) async throws(OpsError) -> (moved: Int64, total: Int64) {
        try Self.checkTarget(.lane, name)
        guard let lane = Lane(name: name) else { return (0, 0) }
        let keys = installation.keys
        let (moved, total) = try await installation.withPrimary { client in
            let statistics = try await QueueStatistics(client: client, keys: keys).lanes()
            let total = statistics.first { $0.lane == lane }?.due ?? 0
            let moved = try await DelayedJobs(client: client, keys: keys).promote(lane) { progress($0, total) }
            return (moved, total)
        }
        let entry = AuditEntry(
            organization: nil, at: nowMicroseconds, actor: actor, action: "queue.promote", subject: "lane:\(name)",
            detail: Document.members(["promoted": .int(moved)]).jsonText)
        try await installation.withPostgres { try await AuditLog.append(entry, $0) }
        return (moved, total)
    }
}
