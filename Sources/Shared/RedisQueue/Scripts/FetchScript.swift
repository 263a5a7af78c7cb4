internal import Redis

extension QueueScripts {
    /// Hands out new jobs of one lane, unless the queue is not seeded or the lane is paused: both in one step, so that
    /// a pause holds at once. A missing group is made at 0, never at `$`: jobs may have come before the group.
    ///
    /// KEYS: 1 meta, 2 lane
    /// ARGV: 1 group, 2 consumer, 3 most entries, 4 lane name
    /// Answers `unseeded`, `paused`, or {entries, last id, what is paused}: the id of the last entry handed out or, when
    /// there was none, the last id the stream ever gave, from which a waiter may go on. Reading a stream can't leave
    /// out the jobs of a paused kind or organization: the caller parks them.
    static let fetch = RedisScript(
        name: "fetch",
        source: """
            #!lua flags=allow-oom
            \(pauses)
            local orders = pauses(KEYS[1])
            if not orders.seeded then return 'unseeded' end
            if orders.orders['lane:' .. ARGV[4]] then return 'paused' end
            local function read()
                return redis.pcall('XREADGROUP', 'GROUP', ARGV[1], ARGV[2], 'COUNT', ARGV[3], 'STREAMS', KEYS[2], '>')
            end
            local found = read()
            if found and found.err then
                if not string.find(found.err, 'NOGROUP', 1, true) then return found end
                redis.call('XGROUP', 'CREATE', KEYS[2], ARGV[1], '0', 'MKSTREAM')
                found = read()
                if found and found.err then return found end
            end
            if found and found[1] then
                local entries = found[1][2]
                return {entries, entries[#entries][1], orders.names}
            end
            local info = redis.call('XINFO', 'STREAM', KEYS[2])
            for n = 1, #info, 2 do
                if info[n] == 'last-generated-id' then return {{}, info[n + 1], {}} end
            end
            return {{}, '0-0', {}}
            """)
}
