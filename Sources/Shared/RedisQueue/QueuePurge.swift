package import Jobs
package import Redis

/// Throws waiting, delayed and parked jobs away, or counts them: never those in a worker's hands. Calls are short, so
/// that others are served between; it may end anywhere and be begun anew.
package struct QueuePurge: Sendable {
    /// Which jobs: those that fit everything that is not nil.
    package struct Filter: Equatable, Sendable {
        package var lane: Lane?
        package var kind: String?
        package var organization: String?

        package init(lane: Lane? = nil, kind: String? = nil, organization: String? = nil) {
            self.lane = lane
            self.kind = kind
            self.organization = organization
        }

        /// The orders of which one must stand, so that no worker is after the same jobs.
        package var pauses: [(scope: QueueOrder.Scope, target: String)] {
            var all: [(scope: QueueOrder.Scope, target: String)] = []
            if let lane { all.append((.lane, lane.name)) }
            if let kind { all.append((.kind, kind)) }
            if let organization { all.append((.organization, organization)) }
            return all
        }
    }

    /// Where a job may lie without being in anybody's hands, in the order in which jobs move.
    package enum Place: String, CaseIterable, Sendable {
        case due, lane, parked
    }

    package struct Counts: Equatable, Sendable {
        /// Entries looked at.
        package var looked: Int64 = 0
        /// Fitting ones by place: counted, or thrown away.
        package var waiting: Int64 = 0
        package var due: Int64 = 0
        package var parked: Int64 = 0
        /// Of the fitting ones, how many lay in each lane.
        package var lanes: [Lane: Int64] = [:]
        /// False when it was stopped before its end.
        package var isComplete = true

        package var fitting: Int64 { waiting + due + parked }
        package init() {}
    }

    /// Nothing of what should be purged is paused.
    package struct NotPaused: Error, Sendable {
        /// What was thrown away before somebody lifted the pause.
        package let before: Counts
    }

    private let client: RedisClient
    private let keys: QueueKeys

    /// Jobs that moved on while they were looked for are found by another look; with intake open there are always more.
    private static let mostPasses = 4

    package init(client: RedisClient, keys: QueueKeys) {
        self.client = client
        self.keys = keys
    }

    /// How many would be thrown away.
    package func count(
        _ filter: Filter, progress: @Sendable (Counts) -> Bool = { _ in true }
    ) async throws(RedisError) -> Counts {
        var counts = Counts()
        do {
            try await pass(filter, Array(0..<keys.partitions), purging: false, pauses: [], &counts, progress)
        } catch let error as RedisError {
            throw error
        } catch {
            // Only a purge asks for a pause.
            return counts
        }
        return counts
    }

    /// Throws them away.
    /// - Parameters:
    ///   - partitions: nil for all.
    ///   - whilePaused: false for jobs that are the caller's own.
    ///   - progress: told after each call; false stops it there.
    /// - Throws: `NotPaused`, or `RedisError`: some are then gone, and calling it again helps.
    package func purge(
        _ filter: Filter, partitions: [Int]? = nil, whilePaused: Bool = true,
        progress: @Sendable (Counts) -> Bool = { _ in true }
    ) async throws -> Counts {
        var counts = Counts()
        let pauses = whilePaused ? filter.pauses.map { QueueOrder.name($0.scope, $0.target) } : []
        for _ in 0..<Self.mostPasses {
            let before = counts.fitting
            try await pass(
                filter, partitions ?? Array(0..<keys.partitions), purging: true, pauses: pauses, &counts, progress)
            if counts.fitting == before || !counts.isComplete { break }
        }
        return counts
    }

    private func pass(
        _ filter: Filter, _ partitions: [Int], purging: Bool, pauses: [String], _ counts: inout Counts,
        _ progress: @Sendable (Counts) -> Bool
    ) async throws {
        for partition in partitions {
            for lane in filter.lane.map({ [$0] }) ?? Lane.allCases {
                for place in Place.allCases {
                    try await go(through: place, partition, lane, filter, purging, pauses, &counts, progress)
                    guard counts.isComplete else { return }
                }
            }
        }
    }

    private func go(
        through place: Place, _ partition: Int, _ lane: Lane, _ filter: Filter, _ purging: Bool, _ pauses: [String],
        _ counts: inout Counts, _ progress: @Sendable (Counts) -> Bool
    ) async throws {
        let key =
            switch place {
            case .due: keys.due(partition, lane)
            case .lane: keys.lane(partition, lane)
            case .parked: keys.parked(partition, lane)
            }
        var cursor = ""
        repeat {
            let answer = try await client.evaluate(
                purging ? QueueScripts.purge : QueueScripts.countPurge,
                keys: [
                    .text(keys.meta(partition)), .text(key), .text(keys.later(partition, lane)),
                    .text(keys.backlog(partition)), .text(keys.stats(partition)), .text(keys.alone(partition)),
                ],
                arguments: [
                    .text(place.rawValue), .text(QueueKeys.group), .text(lane.name),
                    .integer(Int64(QueueScripts.mostEntries)), .text(cursor), .text(filter.kind ?? ""),
                    .text(filter.organization ?? ""), purging ? "1" : "0",
                ] + pauses.map { .text($0) })
            guard let parts = answer.elements, parts.count == 3, let looked = parts[0].int64,
                let fitting = parts[1].int64, let next = parts[2].text
            else {
                if answer.text == "running" { throw NotPaused(before: counts) }
                throw RedisError(code: .protocolViolation, message: "the purge script answered in another form")
            }
            counts.looked += looked
            counts.lanes[lane, default: 0] += fitting
            switch place {
            case .due: counts.due += fitting
            case .lane: counts.waiting += fitting
            case .parked: counts.parked += fitting
            }
            cursor = next
            guard progress(counts) else {
                counts.isComplete = false
                return
            }
        } while !cursor.isEmpty
    }
}
