internal import Bytes
internal import Postgres
package import Store
internal import Wire

extension Administration {
    // MARK: - Installs

    /// - Parameters:
    ///   - day: `2026-11-30`, in UTC: when the token was received.
    ///   - status: an HTTP status, or 0 for no answer.
    /// - Throws: `.usage` for what none of them can be.
    package static func adServicesFilter(
        app: String? = nil, state: String? = nil, day: String? = nil, status: String? = nil
    ) throws(OpsError) -> AdServicesFilter {
        var filter = AdServicesFilter(app: app)
        if let state {
            guard let known = AdServicesRecord.State(rawValue: state) else {
                let names = AdServicesRecord.State.allCases.map(\.rawValue).joined(separator: ", ")
                throw OpsError(.usage, "\(quoted(state)) is no state: it must be one of \(names)")
            }
            filter.state = known
        }
        if let day {
            // A leap second or hour 24 would be read as another day's.
            guard day.utf8.count == 10, let start = Timestamps.milliseconds(rfc3339: day + "T00:00:00Z") else {
                throw OpsError(.usage, "\(quoted(day)) is no day: it must read like 2026-11-30, and is taken in UTC")
            }
            filter.received = start * 1000..<(start + 86_400_000) * 1000
        }
        if let status {
            guard let number = Int64(status), number == 0 || 100...599 ~= number else {
                throw OpsError(.usage, "\(quoted(status)) is no HTTP status: 100 to 599, or 0 for no answer")
            }
            filter.lastStatus = number
        }
        return filter
    }

    /// Installs whose AdServices token came, the latest first.
    package func adServices(
        organization: String, _ filter: AdServicesFilter, limit: Int
    ) async throws(OpsError) -> [AdServicesRecord] {
        try await inOrganization(organization) { connection in
            try await AdServicesTokens.list(organization: organization, matching: filter, limit: limit, connection)
        }
    }

    /// One install.
    /// - Parameters:
    ///   - installID: in any case of its letters when it is a UUID.
    ///   - app: an app's id or a bundle id; nil when the install is known in one app only.
    /// - Throws: `.notFound` when no token of it came; `.usage` when several apps have it.
    package func adServices(
        installID: String, organization: String, app: String?
    ) async throws(OpsError) -> AdServicesRecord {
        let subject = TextRules.foldedInstallID(installID)
        return try await inOrganization(organization) { connection in
            let found = try await AdServicesTokens.find(
                organization: organization, subject: subject, app: app, connection)
            guard let first = found.first else {
                throw OpsError(
                    .notFound, "\(organization) has no AdServices token of install \(Self.quoted(installID))")
            }
            guard found.count == 1 else {
                let bundles = found.map(\.bundleID).joined(separator: ", ")
                throw OpsError(.usage, "several apps have this install, name one with --app: \(bundles)")
            }
            return first
        }
    }

    package struct AdServicesSummary: Equatable, Sendable {
        /// Microseconds since 1970: when the tokens were received.
        package let received: Range<Int64>
        package let statistics: AdServicesStatistics

        /// Installs in a state, of some last statuses only where they are named.
        package func installs(_ state: AdServicesRecord.State, lastStatus: Int64? = nil) -> Int64 {
            statistics.rows.filter { $0.state == state && (lastStatus == nil || $0.lastStatus == lastStatus) }
                .reduce(0) { $0 + $1.installs }
        }

        /// Rows without those of test installs, which are in no number.
        package var rows: [AdServicesStatistics.Row] { statistics.rows.filter { $0.state != .test } }
        package var installs: Int64 { rows.reduce(0) { $0 + $1.installs } }
        package var ended: Int64 { installs - installs(.pending) }
    }

    /// Counts of installs by what became of their tokens.
    /// - Parameter days: so many days, today's included, where the filter names no day.
    package func adServicesStatistics(
        organization: String, _ filter: AdServicesFilter, days: Int
    ) async throws(OpsError) -> AdServicesSummary {
        var filter = filter
        let tomorrow = (nowMicroseconds / 86_400_000_000 + 1) * 86_400_000_000
        let received = filter.received ?? tomorrow - Int64(days) * 86_400_000_000..<tomorrow
        filter.received = received
        let asked = filter
        let statistics = try await inOrganization(organization) { connection in
            try await AdServicesTokens.statistics(organization: organization, matching: asked, connection)
        }
        return AdServicesSummary(received: received, statistics: statistics)
    }

    // MARK: - The sweep

    package func sweepStatus() async throws(OpsError) -> AdServicesSweepStatus {
        let now = nowMicroseconds
        return try await installation.withPostgres { connection in
            try await AdServicesOperations.status(nowMicroseconds: now, connection)
        }
    }

    /// Pauses all sweepers.
    /// - Parameter milliseconds: how long; nil until it is lifted.
    /// - Returns: the pause that it replaces.
    /// - Throws: `.usage` for a reason that can't be.
    package func pauseSweep(
        reason: String, milliseconds: Int64?
    ) async throws(OpsError) -> AdServicesSweepStatus.Pause? {
        try Self.checkReason(reason)
        let (actor, now) = (actor, nowMicroseconds)
        return try await installation.withPostgres { connection in
            try await AdServicesOperations.pause(
                reason: reason, milliseconds: milliseconds, actor: actor, nowMicroseconds: now, connection)
        }
    }

    /// - Returns: the pause that was lifted; nil when there was none.
    package func resumeSweep() async throws(OpsError) -> AdServicesSweepStatus.Pause? {
        let (actor, now) = (actor, nowMicroseconds)
        return try await installation.withPostgres { connection in
            try await AdServicesOperations.resume(actor: actor, nowMicroseconds: now, connection)
        }
    }

    /// How far a `runSweep` is.
    package struct SweepRun: Equatable, Sendable {
        /// Tokens that fitted at the start.
        package var total: Int64 = 0
        package var moved = 0
        /// False when it was stopped before its end.
        package var isComplete = false
    }

    /// Tokens moved in one transaction: short enough that no sweeper waits for it.
    private static let runBatch = 2_000

    /// Makes tokens that wait for their next rung due now. Each ask uses its rung up, as if its time had come. Pauses and
    /// holds stay.
    /// - Parameter progress: told after each batch; false stops it, and the same call goes on from there.
    /// - Throws: `.notFound` for an unknown organization.
    package func runSweep(
        organization: String?, app: String?, progress: @escaping @Sendable (SweepRun) -> Bool = { _ in true }
    ) async throws(OpsError) -> SweepRun {
        let (actor, now) = (actor, nowMicroseconds)
        let filter = AdServicesOperations.RunFilter(organization: organization, app: app)
        var run = SweepRun()
        if let organization { try await inOrganization(organization) { _ in } }
        run.total = try await installation.withPostgres { connection in
            try await AdServicesOperations.matching(filter, nowMicroseconds: now, connection)
        }
        var after: Int64 = 0
        while true {
            let from = after
            let batch = try await installation.withPostgres { connection in
                try await AdServicesOperations.run(
                    filter, actor: actor, nowMicroseconds: now, after: from, limit: Self.runBatch, connection)
            }
            guard let batch else { break }
            run.moved += batch.moved
            after = batch.until
            guard progress(run) else { return run }
        }
        run.isComplete = true
        return run
    }
}
