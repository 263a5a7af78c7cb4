internal import Redis

extension QueueScripts {
    /// Writes the shed level of a partition. Every writer looks each second and writes what it sees, so a level follows
    /// the queue within a second or two. Orders that ran out are forgotten here too: of a queue at rest nobody else comes
    /// across them.
    ///
    /// KEYS: 1 meta
    /// ARGV: 1 level (0–3)
    /// Answers the level that stood before.
    static let shed = RedisScript(
        name: "shed",
        source: """
            #!lua flags=allow-oom
            \(pauses)
            \(drains)
            pauses(KEYS[1])
            drains(KEYS[1])
            local before = redis.call('HGET', KEYS[1], 'shed') or '0'
            if before ~= ARGV[1] then redis.call('HSET', KEYS[1], 'shed', ARGV[1]) end
            return tonumber(before)
            """)
}
