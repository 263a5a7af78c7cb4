internal import Redis

extension QueueScripts {
    /// Takes over what a dead worker held. Fewer entries back than were pending means that entries were deleted while
    /// pending, which nothing of ours does: the caller raises an alarm.
    ///
    /// KEYS: 1 meta, 2 lane
    /// ARGV: 1 group, 2 consumer, 3 most entries, 4 the dead consumer
    /// Answers `unseeded`, or {pending, {id, deliveries so far, fields}…}.
    static let reclaim = RedisScript(
        name: "reclaim",
        source: """
            #!lua flags=allow-oom
            if redis.call('HGET', KEYS[1], 'seeded') ~= '1' then return 'unseeded' end
            local pending = redis.pcall('XPENDING', KEYS[2], ARGV[1], '-', '+', ARGV[3], ARGV[4])
            if pending.err or #pending == 0 then return {0} end
            local ids, deliveries = {}, {}
            for n, entry in ipairs(pending) do
                ids[n] = entry[1]
                deliveries[entry[1]] = entry[4]
            end
            local answer = {#ids}
            for _, entry in ipairs(redis.call('XCLAIM', KEYS[2], ARGV[1], ARGV[2], 0, unpack(ids))) do
                answer[#answer + 1] = {entry[1], deliveries[entry[1]], entry[2]}
            end
            return answer
            """)

    /// Tells Redis that this worker still works on what it holds, so that nobody takes it over for being idle. Lists
    /// first: a blind claim would steal back an entry that was lost to another worker.
    ///
    /// KEYS: 1 lane
    /// ARGV: 1 group, 2 consumer, 3 most entries, 4 where to begin: `-` or `(` and an id
    /// Answers the ids of what it holds from there on, the most at most.
    static let refresh = RedisScript(
        name: "refresh",
        source: """
            #!lua flags=allow-oom
            local pending = redis.pcall('XPENDING', KEYS[1], ARGV[1], ARGV[4], '+', ARGV[3], ARGV[2])
            if pending.err or #pending == 0 then return {} end
            local ids = {}
            for n, entry in ipairs(pending) do ids[n] = entry[1] end
            ids[#ids + 1] = 'JUSTID'
            return redis.call('XCLAIM', KEYS[1], ARGV[1], ARGV[2], 0, unpack(ids))
            """)

    /// Gives back what a stopping worker holds: to the consumer `released`, as if never delivered, so that others go
    /// on at once and a deploy never looks like a crash.
    ///
    /// KEYS: 1 lane
    /// ARGV: 1 group, 2 consumer, 3 most entries
    /// Answers how many were given back.
    static let release = RedisScript(
        name: "release",
        source: """
            #!lua flags=allow-oom
            local pending = redis.pcall('XPENDING', KEYS[1], ARGV[1], '-', '+', ARGV[3], ARGV[2])
            if pending.err or #pending == 0 then return 0 end
            for _, entry in ipairs(pending) do
                redis.call('XCLAIM', KEYS[1], ARGV[1], 'released', 0, entry[1],
                    'IDLE', 86400000, 'RETRYCOUNT', 0, 'JUSTID')
            end
            return #pending
            """)

    /// Forgets a dead consumer that holds nothing. Removing one with pending entries would drop them silently, so
    /// both are one step.
    ///
    /// KEYS: 1 lane
    /// ARGV: 1 group, 2 the dead consumer
    /// Answers 1 when it was removed.
    static let reap = RedisScript(
        name: "reap",
        source: """
            #!lua flags=allow-oom
            local pending = redis.pcall('XPENDING', KEYS[1], ARGV[1], '-', '+', 1, ARGV[2])
            if pending.err or #pending > 0 then return 0 end
            redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], ARGV[2])
            return 1
            """)
}
