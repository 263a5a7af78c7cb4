/// The scripts of the queue, one constant each, in this folder. Every one works in bounded time on one partition.
///
/// All but accept carry `allow-oom`: at maxmemory, jobs must still be fetched, settled and buried, or memory would
/// never be freed.
enum QueueScripts {
    /// Most entries one call moves or settles. Keeps the slowest script well below 10 ms, and Lua's `unpack` in its
    /// limits.
    static let mostEntries = 256
}
