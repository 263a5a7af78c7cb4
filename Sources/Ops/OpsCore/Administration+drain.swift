internal import Jobs
internal import Postgres
internal import Redis
package import RedisQueue

extension Administration {
    /// What a drain or purge is about.
    package struct QueueTarget: Equatable, Sendable {
        package let scope: QueueOrder.Scope
        package let target: String

        package init(_ scope: QueueOrder.Scope, _ target: String) {
            self.scope = scope
            self.target = target
        }

        /// The whole queue, lane by lane.
        package static var everything: [QueueTarget] { Lane.allCases.map { QueueTarget(.lane, $0.name) } }

        package func isMeant(by order: QueueOrder) -> Bool {
            order.scope == scope && order.target.utf8.elementsEqual(target.utf8)
        }
    }

    /// How far a drain is.
    package struct DrainState: Equatable, Sendable {
        /// Jobs that are not ended.
        package var left: Int64 = 0
        /// By place; nil for a kind or an organization, which are counted as a whole.
        package var places: Places?
        /// Until the next delayed job of the lanes concerned is due, when there is one.
        package var nextDueMilliseconds: Int64?
        /// The orders that close its intake.
        package var closing: [QueueOrder] = []
        /// The pauses that hold workers back from some of it.
        package var pausing: [QueueOrder] = []

        package init() {}

        package struct Places: Equatable, Sendable {
            package var waiting: Int64 = 0
            package var pending: Int64 = 0
            package var due: Int64 = 0
            package var parked: Int64 = 0
        }
    }

    /// Closes the intake of all targets from the next call of an ingress on; callers are told to come again later.
    /// - Throws: as `pause`.
    package func drain(
        _ targets: [QueueTarget], reason: String, milliseconds: Int64?
    ) async throws(OpsError) -> OrderOutcome {
        var outcome = OrderOutcome(orders: [])
        for target in targets {
            let one = try await give(.drain, target.scope, target.target, reason: reason, milliseconds: milliseconds)
            outcome.orders += one.orders
            for warning in one.warnings where !outcome.warnings.contains(warning) { outcome.warnings.append(warning) }
        }
        return outcome
    }

    /// - Throws: `.usage` for a target that can't be, `.dependencyAway` when Redis is away or was wiped: its numbers would
    ///   say nothing.
    package func drainState(_ targets: [QueueTarget]) async throws(OpsError) -> DrainState {
        for target in targets { try Self.checkTarget(target.scope, target.target) }
        let keys = installation.keys
        return try await installation.withRedis { client in
            guard await QueueSeed(client: client, keys: keys).isSeeded() == true else {
                throw OpsError(.dependencyAway, "the queue in redis is not seeded: it is new or was wiped")
            }
            let statistics = QueueStatistics(client: client, keys: keys)
            let orders = try await QueueOrders(client: client, keys: keys).list()
            let lanes = try await statistics.lanes()
            var state = DrainState()
            state.closing = orders.filter { order in
                order.action == .drain && targets.contains { $0.isMeant(by: order) }
            }
            // A pause of anything holds back part of a lane; of a lane, part of anything.
            state.pausing = orders.filter { order in
                order.action == .pause
                    && targets.contains { $0.isMeant(by: order) || ($0.scope == .lane) != (order.scope == .lane) }
            }
            for target in targets {
                switch target.scope {
                case .lane:
                    for lane in lanes where lane.lane.name == target.target {
                        var places = state.places ?? DrainState.Places()
                        places.waiting += lane.waiting
                        places.pending += lane.pending
                        places.due += lane.due
                        places.parked += lane.parked
                        state.places = places
                        state.left += lane.left
                    }
                case .kind: state.left += try await statistics.backlog(kind: target.target)
                case .organization: state.left += try await statistics.backlog(organization: target.target)
                }
            }
            let concerned = lanes.filter { lane in
                targets.contains { $0.scope != .lane || $0.target == lane.lane.name }
            }
            state.nextDueMilliseconds = concerned.compactMap(\.nextDueMilliseconds).min()
            return state
        }
    }

    /// Why nothing is worked off, as far as it can be seen from here; one line each.
    package func hindrances(_ targets: [QueueTarget], _ state: DrainState) async -> [String] {
        var lines = state.pausing.map { order in
            "\(order.scope.rawValue) \(order.target) is paused (\(order.reason)); to let workers at it:"
                + " ratchet queues resume \(Self.flag(order.scope)) \(order.target) --only pause"
        }
        let keys = installation.keys
        let names = targets.filter { $0.scope == .lane }.map(\.target)
        let lanes = Lane.allCases.filter { names.isEmpty || names.contains($0.name) }
        let idle = try? await installation.withRedis { client in
            let statistics = QueueStatistics(client: client, keys: keys)
            var idle: [Lane] = []
            // Of a paused lane nobody has had anything, so that its workers are not known.
            for lane in try await statistics.lanes()
            where lanes.contains(lane.lane) && lane.left > 0 && !lane.paused {
                if try await statistics.liveWorkers(lane.lane) == 0 { idle.append(lane.lane) }
            }
            return idle
        }
        for lane in idle ?? [] {
            let worker = [.verifyLive, .verify].contains(lane) ? "ratchet-verifier" : "ratchet-writer"
            lines.append("no live worker of lane \(lane.name) is known: start \(worker)")
        }
        do throws(OpsError) {
            try await installation.withPostgres { _ = try await $0.query("SELECT 1", []) }
        } catch {
            lines.append("\(error.message): writers wait for it")
        }
        if lines.isEmpty, let milliseconds = state.nextDueMilliseconds, milliseconds > 0 {
            lines.append("delayed jobs come back when they are due, the next in \(max(1, milliseconds / 1000)) s")
        }
        return lines
    }

    /// The flag that names a scope on the command line.
    package static func flag(_ scope: QueueOrder.Scope) -> String {
        scope == .organization ? "--org" : "--\(scope.rawValue)"
    }
}
