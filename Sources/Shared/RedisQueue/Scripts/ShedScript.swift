internal import Redis

extension QueueScripts {
    /// Writes the shed level of a partition. Every writer looks each second and writes what it sees, so a level follows
    /// the queue within a second or two.
    ///
    /// KEYS: 1 meta
    /// ARGV: 1 level (0–3)
    /// Answers the level that stood before.
    static let shed = RedisScript(
        name: "shed",
        source: """
            #!lua flags=allow-oom
            local before = redis.call('HGET', KEYS[1], 'shed') or '0'
            if before ~= ARGV[1] then redis.call('HSET', KEYS[1], 'shed', ARGV[1]) end
            return tonumber(before)
            """)
}
