internal import Redis

extension QueueScripts {
    /// Hands out new jobs of one lane, unless the queue is not seeded or the lane is paused: both in one step, so that
    /// a pause holds at once. A missing group is made at 0, never at `$`: jobs may have come before the group.
    ///
    /// KEYS: 1 meta, 2 lane
    /// ARGV: 1 group, 2 consumer, 3 most entries, 4 lane name, 5 bytes after which no more is read
    /// Answers `unseeded`, `paused`, or {entries, last id, what is paused, 1 when there may be more}: the id of the last entry handed out or, when
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
            local most, bytes, entries, more = tonumber(ARGV[3]), 0, {}, 1
            local function read(count)
                return redis.pcall('XREADGROUP', 'GROUP', ARGV[1], ARGV[2], 'COUNT', count, 'STREAMS', KEYS[2], '>')
            end
            while #entries < most and bytes < tonumber(ARGV[5]) do
                local asked = math.min(8, most - #entries)
                local found = read(asked)
                if found and found.err then
                    if not string.find(found.err, 'NOGROUP', 1, true) then return found end
                    redis.call('XGROUP', 'CREATE', KEYS[2], ARGV[1], '0', 'MKSTREAM')
                    found = read(asked)
                    if found and found.err then return found end
                end
                local got = found and found[1] and found[1][2] or {}
                for _, entry in ipairs(got) do
                    entries[#entries + 1] = entry
                    for _, field in ipairs(entry[2]) do bytes = bytes + #field end
                end
                if #got < asked then
                    more = 0
                    break
                end
            end
            if #entries > 0 then return {entries, entries[#entries][1], orders.names, more} end
            local info = redis.call('XINFO', 'STREAM', KEYS[2])
            for n = 1, #info, 2 do
                if info[n] == 'last-generated-id' then return {{}, info[n + 1], {}, 0} end
            end
            return {{}, '0-0', {}, 0}
            """)
}
