package import AppleAds
package import Postgres
package import Store

/// Who is asked about tokens.
package protocol AdServicesEndpoint: Sendable {
    /// Asks once. Called on the sweep's loop.
    /// - Parameters:
    ///   - token: its text, which must not be logged.
    ///   - tell: called once on that loop, after this has returned, within the deadline, 10 s at the most. A task that waited
    ///     for each ask would be a twentieth of the sweep's own work.
    func ask(_ token: [UInt8], tell: @escaping @Sendable (AdServicesReply) -> Void)
}

/// Who is told how the questions ended of tokens that came with a callback.
package protocol AdServicesOutcomeTarget: Sendable {
    /// Called inside the transaction that writes the outcomes down: what it writes is kept if and only if they are.
    /// It must come to the same when it is called again for a transaction that failed.
    func receive(_ outcomes: [SweptToken], _ connection: PostgresConnection) async throws(PostgresError)
}

/// The time that the sweep goes by, microseconds since 1970.
package protocol SweepClock: Sendable {
    var microseconds: Int64 { get }
    /// Postgres' clock as just read.
    /// - Parameter took: how long the reading took, microseconds.
    func correct(databaseTime: Int64, took: Int64)
    /// Returns at a time, or when the task is cancelled.
    /// - Parameter idle: nothing happens until then unless it comes from outside.
    func sleep(until end: Int64, idle: Bool) async
}
