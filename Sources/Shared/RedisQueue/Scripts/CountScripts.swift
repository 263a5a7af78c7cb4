internal import Redis

extension QueueScripts {
    /// Adds counts. A name beyond the bound is counted under another, so that strangers can't fill memory with names
    /// that they make up.
    ///
    /// KEYS: 1 counts
    /// ARGV: 1 most names, 2 the name of the others, then pairs of name and count
    static let addCounts = RedisScript(
        name: "add-counts",
        source: """
            #!lua flags=allow-oom
            for n = 3, #ARGV, 2 do
                local name = ARGV[n]
                if redis.call('HEXISTS', KEYS[1], name) == 0 and redis.call('HLEN', KEYS[1]) >= tonumber(ARGV[1]) then
                    name = ARGV[2]
                end
                redis.call('HINCRBY', KEYS[1], name, ARGV[n + 1])
            end
            return 1
            """)

    /// Takes away counts that have reached Postgres.
    ///
    /// KEYS: 1 counts
    /// ARGV: pairs of name and count
    static let forgetCounts = RedisScript(
        name: "forget-counts",
        source: """
            #!lua flags=allow-oom
            for n = 1, #ARGV, 2 do
                if redis.call('HINCRBY', KEYS[1], ARGV[n], -tonumber(ARGV[n + 1])) <= 0 then
                    redis.call('HDEL', KEYS[1], ARGV[n])
                end
            end
            return 1
            """)
}
