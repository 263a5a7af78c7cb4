internal import Redis

extension QueueScripts {
    /// Moves due jobs back into their lane, all in one step: a job is delayed or waiting, never neither.
    ///
    /// KEYS: 1 due, 2 later, 3 lane
    /// ARGV: 1 most jobs, 2 due by when in ms (`+inf`: all of them; now when absent)
    /// Answers {moved, milliseconds until the next one is due, or -1}.
    static let promote = RedisScript(
        name: "promote",
        source: """
            #!lua flags=allow-oom
            local time = redis.call('TIME')
            local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
            local stamps = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', ARGV[2] or now, 'LIMIT', 0, ARGV[1])
            for _, stamp in ipairs(stamps) do
                local entry = redis.call('HGET', KEYS[2], stamp)
                if entry then
                    local cut = string.find(entry, '\\n', 1, true)
                    redis.call('XADD', KEYS[3], '*', 'h', string.sub(entry, 1, cut - 1), 'p', string.sub(entry, cut + 1))
                    redis.call('HDEL', KEYS[2], stamp)
                end
                redis.call('ZREM', KEYS[1], stamp)
            end
            local coming = redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')
            if not coming[2] then return {#stamps, -1} end
            return {#stamps, math.max(0, tonumber(coming[2]) - now)}
            """)
}
