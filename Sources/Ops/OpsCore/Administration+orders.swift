internal import Jobs
internal import Postgres
package import RedisQueue
internal import Store
internal import Wire

extension Administration {
    /// What came of an order to the queue.
    package struct OrderOutcome: Sendable {
        /// What was paused, or is paused no more.
        package var orders: [QueueOrder]
        /// What the operator should know besides.
        package var warnings: [String] = []
    }

    /// Pauses a lane, a kind or an organization: from the next fetch on no worker gets a job of it. Intake goes on.
    /// - Parameter milliseconds: how long; nil until it is lifted.
    /// - Throws: `.usage` for a target or reason that can't be, `.dependencyAway` without Redis: the order may then hold
    ///   in a part of the queue, and giving it again helps. Postgres may be away.
    package func pause(
        _ scope: QueueOrder.Scope, _ target: String, reason: String, milliseconds: Int64?
    ) async throws(OpsError) -> OrderOutcome {
        try Self.checkTarget(scope, target)
        guard (1...1_000).contains(reason.utf8.count), !reason.utf8.contains(0) else {
            throw OpsError(.usage, "the reason must have 1 to 1000 bytes")
        }
        let (keys, actor) = (installation.keys, actor)
        let order = try await installation.withRedis { client in
            do {
                return try await QueueOrders(client: client, keys: keys).pause(
                    scope, target, owner: actor, reason: reason, milliseconds: milliseconds)
            } catch is QueueOrders.TooMany {
                throw OpsError(
                    .usage, "\(QueueOrders.mostOrders) orders stand already; ratchet queues resume lifts one")
            }
        }
        var outcome = OrderOutcome(orders: [order])
        if scope == .kind, ![JobKind.echo, .identify, .attribute].contains(JobKind(rawValue: target)) {
            outcome.warnings.append("this version knows no jobs of kind \(Self.quoted(target))")
        }
        if let warning = await copyOrders() {
            outcome.warnings.append(warning)
        } else if scope == .organization {
            do {
                try await inOrganization(target) { _ in }
            } catch {
                outcome.warnings.append(error.message)
            }
        }
        return outcome
    }

    /// Lifts an order.
    /// - Returns: no orders when there was none.
    package func resume(_ scope: QueueOrder.Scope, _ target: String) async throws(OpsError) -> OrderOutcome {
        try Self.checkTarget(scope, target)
        return try await resume {
            $0.scope == scope && $0.target.utf8.elementsEqual(target.utf8)
        } unlisted: {
            (scope, target)
        }
    }

    /// Lifts all orders.
    package func resumeAll() async throws(OpsError) -> OrderOutcome {
        try await resume { _ in
            true
        } unlisted: {
            nil
        }
    }

    /// - Parameter unlisted: what to lift even when it is not in force: Postgres may still have it.
    private func resume(
        _ isMeant: @escaping @Sendable (QueueOrder) -> Bool,
        unlisted: @escaping @Sendable () -> (QueueOrder.Scope, String)?
    ) async throws(OpsError) -> OrderOutcome {
        let (keys, actor) = (installation.keys, actor)
        let lifted = try await installation.withRedis { client in
            let orders = QueueOrders(client: client, keys: keys)
            let standing = try await orders.list().filter(isMeant)
            for order in standing { _ = try await orders.resume(order.scope, order.target, owner: actor) }
            if standing.isEmpty, let (scope, target) = unlisted() {
                _ = try await orders.resume(scope, target, owner: actor)
            }
            return standing
        }
        var outcome = OrderOutcome(orders: lifted)
        if let warning = await copyOrders() { outcome.warnings.append(warning) }
        return outcome
    }

    /// The orders in force.
    package func orders() async throws(OpsError) -> [QueueOrder] {
        let keys = installation.keys
        return try await installation.withRedis { try await QueueOrders(client: $0, keys: keys).list() }
    }

    /// Copies what was ordered to Postgres, from where a wiped Redis gets it back.
    /// - Returns: what to say when that failed; a writer does it later.
    private func copyOrders() async -> String? {
        let keys = installation.keys
        do throws(OpsError) {
            let changes = try await installation.withRedis {
                try await QueueOrders(client: $0, keys: keys).changes()
            }
            for change in changes {
                let order = change.order
                try await installation.withPostgres { connection in
                    try await LaneOrders.copy(
                        LaneOrderRecord(
                            scope: order.scope.rawValue, target: order.target, action: "pause", owner: order.owner,
                            reason: order.reason, until: order.until.map { $0 * 1000 }, createdAt: order.at * 1000),
                        lifted: change.action == .resume, id: change.id, connection)
                }
                try await installation.withRedis { try await QueueOrders(client: $0, keys: keys).forget(change) }
            }
            return nil
        } catch {
            return "the order holds, but is not in Postgres yet: a writer copies it there (\(error.message))"
        }
    }

    private static func checkTarget(_ scope: QueueOrder.Scope, _ target: String) throws(OpsError) {
        switch scope {
        case .lane:
            guard Lane(name: target) != nil else {
                let lanes = Lane.allCases.map(\.name).joined(separator: ", ")
                throw OpsError(.usage, "\(quoted(target)) is no lane: it must be one of \(lanes)")
            }
        case .kind:
            let isPlain = target.utf8.allSatisfy {
                (0x61...0x7a).contains($0) || (0x30...0x39).contains($0) || $0 == 0x5f
            }
            guard isPlain, (1...64).contains(target.utf8.count) else {
                throw OpsError(.usage, "\(quoted(target)) is no kind of job: 1 to 64 of a-z, 0-9 and _")
            }
        case .organization: try checkOrganizationID(target)
        }
    }
}
