internal import Redis

extension QueueScripts {
    /// Notes that a suspected job starts alone, before it runs; settling it forgets the note.
    ///
    /// KEYS: 1 alone
    /// ARGV: 1 stamp
    /// Answers how many starts alone, this one included, have not ended.
    static let startAlone = RedisScript(
        name: "start-alone",
        source: """
            #!lua flags=allow-oom
            return redis.call('HINCRBY', KEYS[1], ARGV[1], 1)
            """)
}
