package import Redis

/// An order of operators to pause or drain something, in force until it is lifted or runs out.
package struct QueueOrder: Equatable, Sendable {
    package enum Scope: String, CaseIterable, Sendable {
        /// One lane alone: `write` leaves `write.live` as it is.
        case lane
        /// Jobs of one kind, in every lane.
        case kind
        /// Jobs of one organization, in every lane.
        case organization
    }
    package enum Action: String, CaseIterable, Sendable {
        /// Workers get no job of it; intake goes on.
        case pause
        /// Intake refuses it; workers go on.
        case drain
    }
    package var action: Action
    package var scope: Scope
    /// Which one of them.
    package var target: String
    package var owner: String
    package var reason: String
    /// Milliseconds since 1970 on Redis' clock: when it was given,
    package var at: Int64
    /// and when it ends by itself; nil stands until it is lifted.
    package var until: Int64?

    package init(
        _ action: Action = .pause, scope: Scope, target: String, owner: String, reason: String, at: Int64,
        until: Int64?
    ) {
        self.action = action
        self.scope = scope
        self.target = target
        self.owner = owner
        self.reason = reason
        self.at = at
        self.until = until
    }

    /// One as Postgres keeps it; nil when it is written in words that this version does not know.
    package init?(
        action: String, scope: String, target: String, owner: String, reason: String, atMicroseconds: Int64,
        untilMicroseconds: Int64?
    ) {
        guard let action = Action(rawValue: action), let scope = Scope(rawValue: scope) else { return nil }
        self.init(
            action, scope: scope, target: target, owner: owner, reason: reason, at: atMicroseconds / 1000,
            until: untilMicroseconds.map { $0 / 1000 })
    }

    /// Scope and target as the scripts name them.
    package var name: String { Self.name(scope, target) }

    static func name(_ scope: Scope, _ target: String) -> String { "\(scope.rawValue):\(target)" }

    /// - Parameter name: `lane:write` and so on; nil for a scope that this version does not know.
    init?(_ action: Action, name: String, owner: String, reason: String, at: Int64, until: Int64?) {
        let parts = name.split(separator: ":", maxSplits: 1)
        guard parts.count == 2, let scope = Scope(rawValue: String(parts[0])) else { return nil }
        self.init(action, scope: scope, target: String(parts[1]), owner: owner, reason: reason, at: at, until: until)
    }

    var arguments: [RedisArgument] {
        [
            .text(name), .text(owner), .text(reason), .integer(at), until.map { .integer($0) } ?? "",
            .text(action.rawValue),
        ]
    }
}

/// The orders to the queue. They are given in Redis, in every partition, and heeded by the scripts; every change is
/// noted there until somebody has copied it to Postgres, from where a wiped Redis gets its orders back.
package struct QueueOrders: Sendable {
    /// A change on its way to Postgres.
    package struct Change: Equatable, Sendable {
        package enum Action: String, Sendable { case pause, drain, resume }
        /// Never given twice.
        package let id: String
        package let action: Action
        /// For `resume` its action is what was lifted, owner and `at` are those of the lifting.
        package let order: QueueOrder
        /// False for a `resume` of what the queue did not have: it lifts what Postgres may have, and else was none.
        package let stood: Bool
    }

    /// So many orders stand already that one more would slow down every fetch.
    package struct TooMany: Error, Sendable {}

    private let client: RedisClient
    private let keys: QueueKeys

    /// Every fetch reads all of them: these cost well below a tenth of a millisecond.
    package static let mostOrders = 64
    /// Changes copied at once; the others follow.
    private static let changesAtOnce = 64

    package init(client: RedisClient, keys: QueueKeys) {
        self.client = client
        self.keys = keys
    }

    /// Holds from the next fetch on. An order on the same target is replaced.
    /// - Parameter milliseconds: how long it stands; nil until it is lifted.
    /// - Throws: `TooMany`, or `RedisError`: some partitions may then have it, and giving it again helps.
    package func pause(
        _ scope: QueueOrder.Scope, _ target: String, owner: String, reason: String, milliseconds: Int64?
    ) async throws -> QueueOrder {
        try await give(.pause, scope, target, owner: owner, reason: reason, milliseconds: milliseconds)
    }

    /// Holds from the next call of intake on; otherwise as `pause`.
    package func drain(
        _ scope: QueueOrder.Scope, _ target: String, owner: String, reason: String, milliseconds: Int64?
    ) async throws -> QueueOrder {
        try await give(.drain, scope, target, owner: owner, reason: reason, milliseconds: milliseconds)
    }

    private func give(
        _ action: QueueOrder.Action, _ scope: QueueOrder.Scope, _ target: String, owner: String, reason: String,
        milliseconds: Int64?
    ) async throws -> QueueOrder {
        let now = try await nowMilliseconds()
        let order = QueueOrder(
            action, scope: scope, target: target, owner: owner, reason: reason, at: now,
            until: milliseconds.map { now + $0 })
        // The change is noted with the last one, partition 0: what is copied holds everywhere.
        for partition in (0..<keys.partitions).reversed() {
            let answer = try await client.evaluate(
                QueueScripts.order, keys: [.text(keys.meta(partition)), .text(keys.changes(partition))],
                arguments: order.arguments + [.integer(Int64(Self.mostOrders)), partition == 0 ? "1" : "0"])
            guard answer.int64 == 1 else { throw TooMany() }
        }
        return order
    }

    /// - Parameters:
    ///   - action: what kind of order is lifted.
    ///   - stands: false when the queue has no such order, and it is lifted for what Postgres may have.
    /// - Returns: whether there was one anywhere.
    package func resume(
        _ scope: QueueOrder.Scope, _ target: String, owner: String, lifting action: QueueOrder.Action = .pause,
        stands: Bool = true
    ) async throws(RedisError) -> Bool {
        let now = try await nowMilliseconds()
        var found = false
        for partition in (0..<keys.partitions).reversed() {
            let answer = try await client.evaluate(
                QueueScripts.resume, keys: [.text(keys.meta(partition)), .text(keys.changes(partition))],
                arguments: [
                    .text(QueueOrder.name(scope, target)), .text(owner), .integer(now), partition == 0 ? "1" : "0",
                    .text(action.rawValue), stands ? "1" : "0",
                ])
            if answer.int64 == 1 { found = true }
        }
        return found
    }

    /// What is in force in any partition, by scope, target and action.
    package func list() async throws(RedisError) -> [QueueOrder] {
        var found: [[String]: QueueOrder] = [:]
        for partition in 0..<keys.partitions {
            let answer = try await client.evaluate(
                QueueScripts.orders, keys: [.text(keys.meta(partition))], arguments: [])
            for item in answer.elements?.dropFirst() ?? [] {
                let fields = item.elements?.map { $0.text ?? "" } ?? []
                guard fields.count == 6, let action = QueueOrder.Action(rawValue: fields[5]),
                    let order = QueueOrder(
                        action, name: fields[0], owner: fields[1], reason: fields[2], at: Int64(fields[3]) ?? 0,
                        until: Int64(fields[4]))
                else { continue }
                found[[order.name, order.action.rawValue]] = order
            }
        }
        return found.values.sorted {
            ($0.scope.rawValue, $0.target, $0.action.rawValue) < ($1.scope.rawValue, $1.target, $1.action.rawValue)
        }
    }

    /// Changes that nobody has copied to Postgres, the oldest first; several may copy the same ones.
    package func changes() async throws(RedisError) -> [Change] {
        let answer = try await client.command([
            "XRANGE", .text(keys.changes(0)), "-", "+", "COUNT", .integer(Int64(Self.changesAtOnce)),
        ])
        var changes: [Change] = []
        for entry in answer.elements ?? [] {
            guard let pair = entry.elements, pair.count == 2, let id = pair[0].text else { continue }
            let items = pair[1].elements?.map { $0.text ?? "" } ?? []
            var fields: [String: String] = [:]
            for index in stride(from: 0, to: items.count - 1, by: 2) { fields[items[index]] = items[index + 1] }
            guard let action = Change.Action(rawValue: fields["action"] ?? ""),
                let order = QueueOrder(
                    QueueOrder.Action(rawValue: fields["lifts"] ?? action.rawValue) ?? .pause,
                    name: fields["name"] ?? "", owner: fields["owner"] ?? "", reason: fields["reason"] ?? "",
                    at: Int64(fields["at"] ?? "") ?? 0, until: Int64(fields["until"] ?? ""))
            else { continue }
            changes.append(Change(id: id, action: action, order: order, stood: fields["stood"] != "0"))
        }
        return changes
    }

    /// Ends the note of a change that Postgres has.
    package func forget(_ change: Change) async throws(RedisError) {
        _ = try await client.command(["XDEL", .text(keys.changes(0)), .text(change.id)])
    }

    private func nowMilliseconds() async throws(RedisError) -> Int64 {
        // Of the node whose partition the change is noted in.
        let time =
            try await client.command(["TIME"], near: .text(keys.changes(0))).elements?.compactMap {
                $0.text.flatMap { Int64($0) }
            } ?? []
        guard time.count == 2 else { throw RedisError(code: .protocolViolation, message: "TIME answered otherwise") }
        return time[0] * 1000 + time[1] / 1000
    }
}
