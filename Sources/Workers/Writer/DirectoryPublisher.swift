internal import EventLoop
internal import Postgres
internal import Redis
internal import RedisQueue
internal import Service
internal import Store
internal import Wire

/// Keeps Redis' copies of what Postgres knows: seeds a Redis that forgot everything, publishes the app directory when
/// it changed, and fetches the counts of dropped writes and of enrolments.
///
/// Every writer does this; all steps may be repeated and may overlap.
struct DirectoryPublisher: Sendable {
    let loop: EventLoop
    let client: RedisClient
    let keys: QueueKeys
    let postgres: PostgresClient
    let log: Log

    /// A change must reach every ingress within a second, its own look at Redis included.
    private static let pollMilliseconds: Int64 = 250
    /// What is only counted may wait.
    private static let countsEveryPasses = 4

    func runUntilCancelled() async {
        var pass = 0
        while !Task.isCancelled {
            await once(withCounts: pass % Self.countsEveryPasses == 0)
            pass += 1
            await loop.sleep(milliseconds: Self.pollMilliseconds)
        }
    }

    private func once(withCounts: Bool) async {
        do {
            try await publish()
            try await copyOrders()
            try await seed()
            if withCounts {
                try await fetchUnresolved()
                try await fetchEnrolments()
            }
        } catch let error as QueueSeed.Mismatch {
            log.limited(.error, "the queue has another shape", ["text": error.message])
        } catch let error as RedisError {
            log.limited(.warn, "redis is away; the app directory waits", ["text": error.message])
        } catch let error as PostgresError {
            log.limited(.warn, "postgres is away; the app directory waits", ["text": error.message])
        } catch {
            log.limited(.error, "the app directory could not be published", ["text": "\(error)"])
        }
    }

    /// The directory comes before the seed: once intake is open, no ingress may take an empty one for the truth.
    private func publish() async throws {
        let published = PublishedDirectory(client: client, keys: keys)
        let stands = try await published.version()
        let version = try await postgres.withConnection { connection throws(PostgresError) in
            try await DirectorySnapshot.version(connection)
        }
        guard stands == nil || version > (stands ?? 0) else { return }
        let snapshot = try await postgres.withConnection { connection throws(PostgresError) in
            try await DirectorySnapshot.load(connection)
        }
        _ = try await published.publish(
            version: snapshot.version, body: AppDirectory.encode(snapshot.apps.map { Self.published($0, snapshot) }))
        log.info("app directory published", ["version": snapshot.version, "apps": snapshot.apps.count])
    }

    private static func published(_ app: AppRecord, _ snapshot: DirectorySnapshot) -> AppDirectory.App {
        AppDirectory.App(
            organization: app.organization, id: app.id, bundleID: app.bundleID, store: app.store,
            team: app.teamID ?? "", allowsDevelopment: app.allowsDevelopment,
            attestedPerMinute: snapshot.attestedPerMinute[app.organization])
    }

    private func seed() async throws {
        let seed = QueueSeed(client: client, keys: keys)
        guard await seed.isSeeded() == false else { return }
        let now = loop.time.wallMicroseconds
        let orders = try await postgres.withConnection { connection throws(PostgresError) in
            try await LaneOrders.list(nowMicroseconds: now, connection)
        }
        try await seed.seed(orders: orders.compactMap(Self.order))
        log.info("queue seeded", ["partitions": keys.partitions, "orders": orders.count])
    }

    private static func order(_ record: LaneOrderRecord) -> QueueOrder? {
        QueueOrder(
            action: record.action, scope: record.scope, target: record.target, owner: record.owner,
            reason: record.reason, atMicroseconds: record.createdAt, untilMicroseconds: record.until)
    }

    /// What operators ordered while Postgres was away, or did not get to copy themselves. It comes before the seed,
    /// which must not bring back what was lifted.
    private func copyOrders() async throws {
        let orders = QueueOrders(client: client, keys: keys)
        for change in try await orders.changes() {
            let order = change.order
            let record = LaneOrderRecord(
                scope: order.scope.rawValue, target: order.target, action: order.action.rawValue, owner: order.owner,
                reason: order.reason, until: order.until.map { $0 * 1000 }, createdAt: order.at * 1000)
            try await postgres.withConnection { connection throws(PostgresError) in
                try await LaneOrders.copy(
                    record, lifted: change.action == .resume, stood: change.stood, id: change.id, connection)
            }
            try await orders.forget(change)
        }
    }

    private func fetchUnresolved() async throws {
        let counts = PendingCounts(client: client, key: keys.unresolved)
        let waiting = try await counts.all()
        guard !waiting.isEmpty else { return }
        let now = loop.time.wallMicroseconds
        try await postgres.withConnection { connection throws(PostgresError) in
            try await UnresolvedBundles.add(waiting, nowMicroseconds: now, connection)
        }
        try await counts.forget(waiting)
    }

    private func fetchEnrolments() async throws {
        let counts = PendingCounts(client: client, key: keys.enrolments)
        let waiting = try await counts.all()
        guard !waiting.isEmpty else { return }
        var known: [EnrolmentCount: Int64] = [:]
        for (name, times) in waiting {
            if let what = EnrolmentCount(name: name) { known[what, default: 0] += times }
        }
        let (now, sums) = (loop.time.wallMilliseconds, known)
        try await postgres.withConnection { connection throws(PostgresError) in
            try await EnrolmentCounts.add(sums, nowMilliseconds: now, connection)
        }
        try await counts.forget(waiting)
    }
}
