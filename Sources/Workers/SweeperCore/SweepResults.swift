internal import AppleAds
internal import EventLoop
internal import Postgres
internal import Service
internal import Store

/// Writes down what the sweep has found out, in batches that grow while the database is busy, and tells other sweepers
/// of holds. Confined to the sweep's loop.
final class SweepResults {
    private unowned let sweep: Sweep
    private var swept: [SweptToken] = []
    private var isWriting = false
    private(set) var holdUntil: Int64 = .min
    private var holdReason = ""
    private var holdIsWritten = true

    /// Rows of one statement: far more than come together, and little enough for its deadline.
    private static let mostRows = 1_000
    /// Between two tries of a database that is away.
    private static let restMilliseconds: Int64 = 1_000
    /// After a collision with other work.
    private static let collisionMilliseconds: Int64 = 10

    init(_ sweep: Sweep) { self.sweep = sweep }

    var isIdle: Bool { swept.isEmpty && !isWriting }
    /// A hold that other sweepers can't know of yet.
    var unwrittenHold: Int64 { holdIsWritten ? .min : holdUntil }

    func add(_ one: SweptToken) {
        swept.append(one)
        start()
    }

    /// Written before what is added later.
    func hold(until end: Int64, reason: String) {
        holdUntil = end
        holdReason = reason
        holdIsWritten = false
        start()
    }

    private func start() {
        guard !isWriting else { return }
        isWriting = true
        // The sweep waits for the end of this before it ends itself.
        let sweep = sweep
        sweep.loop.spawn { await sweep.writeResults() }
    }

    func writeAll() async {
        while !swept.isEmpty || !holdIsWritten {
            let batch = Array(swept.prefix(Self.mostRows))
            swept.removeFirst(batch.count)
            do throws(PostgresError) {
                try await write(batch)
            } catch {
                await recover(from: error, batch)
            }
        }
        isWriting = false
        sweep.resultsAreWritten()
    }

    private func write(_ batch: [SweptToken]) async throws(PostgresError) {
        let parts = sweep.parts
        let hold = holdIsWritten ? nil : (end: holdUntil, reason: holdReason)
        let held = try await parts.results.withConnection { connection throws(PostgresError) in
            if let hold { try await AdServicesSweep.hold(until: hold.end, reason: hold.reason, connection) }
            guard let target = parts.target, batch.contains(where: { $0.ending != nil && $0.token.callback != nil })
            else { return try await AdServicesSweep.finish(batch, connection) }
            return try await connection.transaction { () async throws(PostgresError) in
                let held = try await AdServicesSweep.finish(batch, connection)
                let told = held.sorted().map { batch[$0] }.filter { $0.ending != nil && $0.token.callback != nil }
                if !told.isEmpty { try await target.receive(told, connection) }
                return held
            }
        }
        if let hold, hold.end == holdUntil { holdIsWritten = true }
        for one in held.lazy.map({ batch[$0] }) {
            if let ending = one.ending {
                parts.metrics.ended(ending, lastStatus: one.ask.map { Int64($0.status) } ?? one.token.lastStatus)
            }
        }
        parts.metrics.addLostLeases(batch.count - held.count)
    }

    /// Nothing is lost for good when results are: their tokens are due again at the end of their leases.
    private func recover(from error: PostgresError, _ batch: [SweptToken]) async {
        let log = sweep.parts.log
        if error.outcome == .permanent {
            guard batch.count > 1 else {
                holdIsWritten = true
                log.error("a result can't be written down", ["text": error.message])
                return
            }
            for one in batch {
                do throws(PostgresError) {
                    try await write([one])
                } catch {
                    log.limited(.error, "a result can't be written down", ["text": error.message])
                }
            }
            return
        }
        guard !sweep.isStopping else {
            holdIsWritten = true
            log.warn("results are thrown away: postgres is away", ["count": batch.count, "text": error.message])
            return
        }
        log.limited(.warn, "postgres is away; results wait", ["text": error.message])
        await sweep.loop.sleep(
            milliseconds: error.outcome == .transient ? Self.collisionMilliseconds : Self.restMilliseconds)
        let now = sweep.parts.clock.microseconds
        let kept = batch.filter { $0.token.leaseEnd > now }
        sweep.parts.metrics.addLostLeases(batch.count - kept.count)
        swept = kept + swept
    }
}
