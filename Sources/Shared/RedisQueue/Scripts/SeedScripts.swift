internal import Redis

extension QueueScripts {
    /// Marks a partition as ready for work and gives it back the orders that a wiped Redis forgot, in one step: before
    /// it nothing is fetched, after it nothing is brought back that was lifted meanwhile.
    ///
    /// KEYS: 1 meta
    /// ARGV: 1 layout version, 2 number of partitions, then for each order: name, owner, reason, at ms, until ms or empty,
    ///   `pause` or `drain`
    /// Answers {layout, partitions} as they stand now: not equal to the arguments means a queue of another shape.
    static let seed = RedisScript(
        name: "seed",
        source: """
            #!lua flags=allow-oom
            \(pauses)
            \(drains)
            redis.call('HSETNX', KEYS[1], 'layout', ARGV[1])
            redis.call('HSETNX', KEYS[1], 'partitions', ARGV[2])
            local meta = redis.call('HMGET', KEYS[1], 'layout', 'partitions', 'seeded')
            if meta[1] == ARGV[1] and meta[2] == ARGV[2] and meta[3] ~= '1' then
                for n = 3, #ARGV, 6 do
                    redis.call('HSETNX', KEYS[1], ARGV[n + 5] .. ':' .. ARGV[n],
                        encoded(ARGV[n + 1], ARGV[n + 2], ARGV[n + 3], ARGV[n + 4]))
                    redis.call('HINCRBY', KEYS[1], 'orders', 1)
                end
                drains(KEYS[1])
                redis.call('HSET', KEYS[1], 'seeded', '1')
            end
            meta[3] = nil
            return meta
            """)

    /// Publishes the app directory, unless a newer one stands there.
    ///
    /// KEYS: 1 directory
    /// ARGV: 1 version, 2 body
    /// Answers the version that stands there now.
    static let publish = RedisScript(
        name: "publish",
        source: """
            #!lua flags=allow-oom
            local stands = tonumber(redis.call('HGET', KEYS[1], 'version') or '-1')
            if tonumber(ARGV[1]) > stands then
                redis.call('HSET', KEYS[1], 'version', ARGV[1], 'body', ARGV[2])
                return tonumber(ARGV[1])
            end
            return stands
            """)

    /// Says that a process lives, for five seconds.
    ///
    /// KEYS: 1 live
    static let live = RedisScript(
        name: "live",
        source: """
            #!lua flags=allow-oom
            redis.call('SET', KEYS[1], '1', 'PX', 5000)
            return 1
            """)
}
