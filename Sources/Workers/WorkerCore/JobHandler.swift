package import Jobs

/// What a worker does with jobs. Everything about queues, retries and stopping is the worker loop's.
package protocol JobHandler: Sendable {
    /// Handles a batch and says what became of each job, in the order given. May be called again with the same jobs,
    /// whole or in part, after it threw or the process died: effects must be joins.
    /// - Throws: `DependencyDown` when a server it needs is away; nothing is then settled and the batch comes again.
    func handle(_ jobs: [FetchedJob]) async throws(DependencyDown) -> [JobOutcome]
}
