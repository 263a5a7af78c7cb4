internal import Jobs
internal import Postgres
package import RedisQueue
internal import Store
internal import Wire

extension Administration {
    /// What came of an order to the queue.
    package struct OrderOutcome: Sendable {
        /// What was ordered, or stands no more.
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
        try await give(.pause, scope, target, reason: reason, milliseconds: milliseconds)
    }

    static func checkReason(_ reason: String) throws(OpsError) {
        guard (1...1_000).contains(reason.utf8.count), !reason.utf8.contains(0) else {
            throw OpsError(.usage, "the reason must have 1 to 1000 bytes")
        }
    }

    func give(
        _ action: QueueOrder.Action, _ scope: QueueOrder.Scope, _ target: String, reason: String, milliseconds: Int64?
    ) async throws(OpsError) -> OrderOutcome {
        try Self.checkTarget(scope, target)
        try Self.checkReason(reason)
        let (keys, actor) = (installation.keys, actor)
        let before = try await orders().first {
            $0.action == action && $0.scope == scope && $0.target.utf8.elementsEqual(target.utf8)
        }
        let order = try await installation.withRedis { client in
            do {
                let orders = QueueOrders(client: client, keys: keys)
                switch action {
                case .pause:
                    return try await orders.pause(
                        scope, target, owner: actor, reason: reason, milliseconds: milliseconds)
                case .drain:
                    return try await orders.drain(
                        scope, target, owner: actor, reason: reason, milliseconds: milliseconds)
                }
            } catch is QueueOrders.TooMany {
                throw OpsError(
                    .usage, "\(QueueOrders.mostOrders) orders stand already; ratchet queues resume lifts one")
            }
        }
        var outcome = OrderOutcome(orders: [order])
        if let before {
            let end = before.until.map { Document.time(milliseconds: $0).string ?? "?" } ?? "it is lifted"
            outcome.warnings.append(
                "this replaces the \(action.rawValue) of \(before.owner) until \(end): \(before.reason)")
        }
        if scope == .kind, !JobKind.all.contains(JobKind(rawValue: target)) {
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

    /// Lifts the orders on something.
    /// - Parameter only: nil for pause and drain alike.
    /// - Returns: no orders when there was none.
    package func resume(
        _ scope: QueueOrder.Scope, _ target: String, only action: QueueOrder.Action? = nil
    ) async throws(OpsError) -> OrderOutcome {
        try Self.checkTarget(scope, target)
        let meant = QueueTarget(scope, target)
        return try await resume(named: (scope, target, action.map { [$0] } ?? QueueOrder.Action.allCases)) {
            meant.isMeant(by: $0) && (action == nil || $0.action == action)
        }
    }

    /// Lifts all orders.
    package func resumeAll(only action: QueueOrder.Action? = nil) async throws(OpsError) -> OrderOutcome {
        try await resume(named: nil) { action == nil || $0.action == action }
    }

    /// - Parameter named: what is lifted when neither the queue has it nor Postgres can be asked; nil for all there is.
    private func resume(
        named: (scope: QueueOrder.Scope, target: String, actions: [QueueOrder.Action])?,
        _ isMeant: @escaping @Sendable (QueueOrder) -> Bool
    ) async throws(OpsError) -> OrderOutcome {
        let (keys, actor) = (installation.keys, actor)
        let lifted = try await installation.withPrimary { client in
            let orders = QueueOrders(client: client, keys: keys)
            let standing = try await orders.list().filter(isMeant)
            for order in standing {
                _ = try await orders.resume(order.scope, order.target, owner: actor, lifting: order.action)
            }
            return standing
        }
        var outcome = OrderOutcome(orders: lifted)
        if lifted.isEmpty || named == nil {
            if let known = try await liftUnlisted(isMeant, named, but: lifted) {
                outcome.orders += known
            } else {
                outcome.warnings.append(
                    named == nil
                        ? "what Postgres alone has stands until it is back: lift all again then"
                        : "nothing of it is in Redis; what Postgres has of it a writer lifts there later")
            }
        }
        guard !outcome.orders.isEmpty else { return outcome }
        if let warning = await copyOrders() { outcome.warnings.append(warning) }
        return outcome
    }

    /// Lifts what a Redis that was wiped has forgotten and Postgres has. Where neither has it, nothing is changed.
    /// - Parameters:
    ///   - named: as of `resume`.
    ///   - lifted: what was lifted just now, which Postgres may still have.
    /// - Returns: what Postgres had; nil when it is away: the lifting of what is named is then noted for a writer.
    private func liftUnlisted(
        _ isMeant: @escaping @Sendable (QueueOrder) -> Bool,
        _ named: (scope: QueueOrder.Scope, target: String, actions: [QueueOrder.Action])?, but lifted: [QueueOrder]
    ) async throws(OpsError) -> [QueueOrder]? {
        let now = nowMicroseconds
        var known: [QueueOrder]?
        do throws(OpsError) {
            known = try await installation.withPostgres { connection in
                try await LaneOrders.list(nowMicroseconds: now, connection)
            }.compactMap {
                QueueOrder(
                    action: $0.action, scope: $0.scope, target: $0.target, owner: $0.owner, reason: $0.reason,
                    atMicroseconds: $0.createdAt, untilMicroseconds: $0.until)
            }.filter { order in
                isMeant(order)
                    && !lifted.contains {
                        QueueTarget($0.scope, $0.target).isMeant(by: order) && $0.action == order.action
                    }
            }
        } catch  where error.code == .dependencyAway {
            known = nil
        }
        let lifting =
            known?.map { ($0.scope, $0.target, $0.action) }
            ?? named.map { named in named.actions.map { (named.scope, named.target, $0) } } ?? []
        let (keys, actor, stands) = (installation.keys, actor, known != nil)
        try await installation.withPrimary { client in
            let orders = QueueOrders(client: client, keys: keys)
            for (scope, target, action) in lifting {
                _ = try await orders.resume(scope, target, owner: actor, lifting: action, stands: stands)
            }
        }
        return known
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
                            scope: order.scope.rawValue, target: order.target, action: order.action.rawValue,
                            owner: order.owner,
                            reason: order.reason, until: order.until.map { $0 * 1000 }, createdAt: order.at * 1000),
                        lifted: change.action == .resume, stood: change.stood, id: change.id, connection)
                }
                try await installation.withRedis { try await QueueOrders(client: $0, keys: keys).forget(change) }
            }
            return nil
        } catch {
            return "done, but Postgres does not know it yet: a writer copies it there (\(error.message))"
        }
    }

    static func checkTarget(_ scope: QueueOrder.Scope, _ target: String) throws(OpsError) {
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
