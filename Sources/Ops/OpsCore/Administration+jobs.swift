internal import Jobs
internal import RedisQueue
package import Store

extension Administration {
    /// Where a job is, and its letters if it died.
    package struct JobFinding: Equatable, Sendable {
        package enum State: String, Sendable {
            case waiting, pending, due, parked, dead
            /// It was a dead letter, which was put back or purged, and is in none of the places any more.
            case ended
            /// In none of the places, and no letter tells of it: Redis forgets a job in the step that ends it, so nobody
            /// can say whether it ended, was lost with Redis' data, or never was.
            case absent
            /// The lanes hold more than was looked at.
            case unknown
        }
        package let partition: Int
        package let stamp: Int64
        package let state: State
        let place: JobSearch.Place?
        /// Entries looked at without finding it; nil when it was found or is surely gone.
        package let searched: Int?
        package let letters: [DeadLetterRecord]
    }

    /// Finds a job by its id, `PARTITION-STAMP`. Bounded work; asks Postgres only for what Redis doesn't have.
    /// - Throws: `.usage` for what can't be an id, `.notFound` for a job that there never was.
    package func job(id: String) async throws(OpsError) -> JobFinding {
        let parts = id.split(separator: "-", omittingEmptySubsequences: false)
        guard parts.count == 2, let partition = Int(parts[0]), let stamp = Int64(parts[1]), stamp > 0 else {
            throw OpsError(.usage, "\(Self.quoted(id)) is no job: PARTITION-STAMP, such as 3-1795996800000000")
        }
        let keys = installation.keys
        guard (0..<keys.partitions).contains(partition) else {
            throw OpsError(.usage, "the queue has no partition \(partition): 0 to \(keys.partitions - 1)")
        }
        let finding = try await installation.withRedis { client in
            try await JobSearch(client: client, keys: keys).find(partition, stamp: stamp)
        }
        var place: JobSearch.Place?
        if case .found(let found) = finding {
            place = found
            if found.kind != .dead {
                return JobFinding(
                    partition: partition, stamp: stamp, state: .init(rawValue: found.kind.rawValue) ?? .unknown,
                    place: found, searched: nil, letters: [])
            }
        }
        let letters = try await installation.withPostgres {
            try await DeadLetters.of(partition: partition, stamp: stamp, $0)
        }
        var searched: Int?
        var state = letters.isEmpty ? JobFinding.State.absent : .ended
        switch finding {
        case .neverAccepted where letters.isEmpty:
            throw OpsError(.notFound, "no job \(id): partition \(partition) has not come so far")
        case .found: state = .dead
        case .unknown(let count):
            state = .unknown
            searched = count
        case .absent, .neverAccepted: break
        }
        if letters.contains(where: { $0.state == .dead }) { (state, searched) = (.dead, nil) }
        return JobFinding(
            partition: partition, stamp: stamp, state: state, place: place, searched: searched, letters: letters)
    }

    /// The latest entries of the audit log, newest first.
    /// - Parameter organization: nil for all, what concerns the whole installation included.
    package func audit(organization: String?, limit: Int) async throws(OpsError) -> [AuditEntry] {
        if let organization { try Self.checkOrganizationID(organization) }
        return try await installation.withPostgres { connection in
            if let organization {
                return try await AuditLog.list(organization: organization, limit: limit, connection)
            }
            return try await AuditLog.latest(limit: limit, connection)
        }
    }
}
