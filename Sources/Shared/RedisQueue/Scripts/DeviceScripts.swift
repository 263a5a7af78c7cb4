internal import Redis

extension QueueScripts {
    /// Uses a challenge up. No memory is taken by challenges that are only given out.
    ///
    /// KEYS: 1 used
    /// ARGV: 1 digest of the call, 2 ms for which it is remembered
    /// Answers `1`: used now, or by an equal call before; `0`: by another one.
    static let useChallenge = RedisScript(
        name: "use-challenge",
        source: """
            #!lua
            local stands = redis.call('GET', KEYS[1])
            if stands then return stands == ARGV[1] and 1 or 0 end
            redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
            return 1
            """)

    /// Remembers whose a token is, unless something stands there: a revocation that came meanwhile wins.
    ///
    /// KEYS: 1 device
    /// ARGV: 1 what is known, 2 ms
    /// Answers what stands there now.
    static let rememberDevice = RedisScript(
        name: "remember-device",
        source: """
            #!lua
            local stands = redis.call('GET', KEYS[1])
            if stands then return stands end
            redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
            return ARGV[1]
            """)

    /// Says that a token lives no more, over anything that stands there.
    ///
    /// KEYS: 1 device
    /// ARGV: 1 the text for nobody's, 2 ms
    static let revokeDevice = RedisScript(
        name: "revoke-device",
        source: """
            #!lua flags=allow-oom
            redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
            return 1
            """)
}
