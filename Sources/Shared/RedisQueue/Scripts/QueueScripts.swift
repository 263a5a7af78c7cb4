internal import Redis

/// The scripts of the queue, one constant each, in this folder. Every one works in bounded time on one partition.
///
/// All but accept carry `allow-oom`: at maxmemory, jobs must still be fetched, settled and buried, or memory would
/// never be freed.
package enum QueueScripts {
    /// Most entries one call moves or settles. Keeps the slowest script well below 10 ms, and Lua's `unpack` in its
    /// limits.
    static let mostEntries = 256

    /// The name of every script by its SHA-1, for whoever reads Redis' slow log.
    package static let names: [String: String] = Dictionary(
        uniqueKeysWithValues: [
            accept, addCounts, countPurge, fetch, forgetCounts, limit, live, order, orders, promote, publish, purge,
            reap, reclaim,
            redrive, refresh, release, rememberDevice, resume, revokeDevice, seed, settle, shed, startAlone, trimDead,
            unpark, useChallenge,
        ].map { ($0.sha1, $0.name) })
}
