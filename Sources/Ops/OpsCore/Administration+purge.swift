internal import Jobs
package import RedisQueue
internal import Store
internal import Synchronization

extension Administration {
    /// - Throws: `.usage` for a lane, kind or organization that can't be, and for none of them.
    package static func purgeFilter(
        lane: String?, kind: String?, organization: String?
    ) throws(OpsError) -> QueuePurge.Filter {
        if let lane { try checkTarget(.lane, lane) }
        if let kind { try checkTarget(.kind, kind) }
        if let organization { try checkTarget(.organization, organization) }
        guard lane != nil || kind != nil || organization != nil else {
            throw OpsError(.usage, "name what to purge: --lane L, --kind K or --org O, or several of them")
        }
        return QueuePurge.Filter(lane: lane.flatMap { Lane(name: $0) }, kind: kind, organization: organization)
    }

    /// How many jobs a purge would throw away.
    /// - Parameter progress: told after each call; false stops the count.
    package func countPurge(
        _ filter: QueuePurge.Filter, progress: @escaping @Sendable (QueuePurge.Counts) -> Bool = { _ in true }
    ) async throws(OpsError) -> QueuePurge.Counts {
        let keys = installation.keys
        return try await installation.withRedis { client in
            try await QueuePurge(client: client, keys: keys).count(filter, progress: progress)
        }
    }

    /// How many entries a count or purge has to look at, about.
    package func entriesToSearch(_ filter: QueuePurge.Filter) async throws(OpsError) -> Int64 {
        let keys = installation.keys
        return try await installation.withRedis { client in
            try await QueueStatistics(client: client, keys: keys).lanes()
                .filter { filter.lane == nil || $0.lane == filter.lane }
                .reduce(0) { $0 + $1.waiting + $1.due + $1.parked }
        }
    }

    /// The pauses under which a purge may run.
    package func pauses(of filter: QueuePurge.Filter) async throws(OpsError) -> [QueueOrder] {
        try await orders().filter { order in
            order.action == .pause
                && filter.pauses.contains { $0.scope == order.scope && $0.target.utf8.elementsEqual(order.target.utf8) }
        }
    }

    /// Throws waiting, delayed and parked jobs away for good. Its beginning is in the audit log before the first one is
    /// gone, since a purge that is killed tells nobody; its end with the counts.
    /// - Throws: `.usage` unless it is paused, `.dependencyAway` without Redis or Postgres.
    package func purgeQueue(
        _ filter: QueuePurge.Filter, reason: String,
        progress: @escaping @Sendable (QueuePurge.Counts) -> Bool = { _ in true }
    ) async throws(OpsError) -> QueuePurge.Counts {
        try Self.checkReason(reason)
        let asked: [Document.Member] = [
            .init("lane", .text(filter.lane?.name)), .init("kind", .text(filter.kind)),
            .init("organization", .text(filter.organization)), .init("reason", .string(reason)),
        ]
        guard try await !pauses(of: filter).isEmpty else { throw Self.notPaused(filter) }
        try await note("queue.purge.begin", filter, asked)
        let keys = installation.keys
        // What is gone is known also when the last call fails.
        let seen = Seen()
        do throws(OpsError) {
            let counts = try await installation.withRedis { client in
                do {
                    return try await QueuePurge(client: client, keys: keys).purge(filter) { counts in
                        seen.set(counts)
                        return progress(counts)
                    }
                } catch is QueuePurge.NotPaused {
                    throw Self.notPaused(filter)
                }
            }
            try await note("queue.purge", filter, asked + Self.members(counts))
            return counts
        } catch {
            var counts = seen.counts
            counts.isComplete = false
            try? await note("queue.purge", filter, asked + Self.members(counts))
            throw OpsError(
                error.code, "\(error.message) (\(counts.fitting) are gone; the same command goes on from there)")
        }
    }

    static func members(_ counts: QueuePurge.Counts) -> [Document.Member] {
        [
            .init("purged", .int(counts.fitting)), .init("waiting", .int(counts.waiting)),
            .init("due", .int(counts.due)), .init("parked", .int(counts.parked)),
            .init("complete", .bool(counts.isComplete)),
        ]
    }

    private static func notPaused(_ filter: QueuePurge.Filter) -> OpsError {
        let pause = filter.pauses.first.map { "\(flag($0.scope)) \($0.target)" } ?? "--lane L"
        return OpsError(
            .usage, "workers are after these jobs; pause them first: ratchet queues pause \(pause) --reason R")
    }

    private func note(
        _ action: String, _ filter: QueuePurge.Filter, _ detail: [Document.Member]
    ) async throws(OpsError) {
        let subject = filter.pauses.map { "\($0.scope.rawValue):\($0.target)" }.joined(separator: " ")
        let entry = AuditEntry(
            organization: filter.organization, at: nowMicroseconds, actor: actor, action: action, subject: subject,
            detail: Document.object(detail).jsonText)
        try await installation.withPostgres { try await AuditLog.append(entry, $0) }
    }
}

/// The last counts of a purge, whatever ends it.
private final class Seen: Sendable {
    private let value = Mutex(QueuePurge.Counts())
    var counts: QueuePurge.Counts { value.withLock { $0 } }
    func set(_ counts: QueuePurge.Counts) { value.withLock { $0 = counts } }
}
