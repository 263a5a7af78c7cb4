internal import Redis

extension QueueScripts {
    /// Hands out new jobs of one lane, unless the queue is not seeded or the lane is paused: both in one step, so that
    /// a pause holds at once. A missing group is made at 0, never at `$`: jobs may have come before the group.
    ///
    /// KEYS: 1 meta, 2 lane
    /// ARGV: 1 group, 2 consumer, 3 most entries, 4 lane name, 5 bytes after which no more entries are read
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
            local function read(count)
                return redis.pcall('XREADGROUP', 'GROUP', ARGV[1], ARGV[2], 'COUNT', count, 'STREAMS', KEYS[2], '>')
            end
            local entries, bytes, left = {}, 0, tonumber(ARGV[3])
            while left > 0 and bytes < tonumber(ARGV[5]) do
                local count = math.min(left, 32)
                local found = read(count)
                if found and found.err then
                    if not string.find(found.err, 'NOGROUP', 1, true) then return found end
                    redis.call('XGROUP', 'CREATE', KEYS[2], ARGV[1], '0', 'MKSTREAM')
                    found = read(count)
                    if found and found.err then return found end
                end
                local part = found and found[1] and found[1][2] or {}
                for n = 1, #part do
                    entries[#entries + 1] = part[n]
                    -- Nil for an entry that was deleted while it was pending.
                    local fields = part[n][2]
                    if fields then
                        for f = 2, #fields, 2 do bytes = bytes + #fields[f] end
                    end
                end
                left = left - count
                if #part < count then
                    left = -1
                end
            end
            if entries[1] then
                return {entries, entries[#entries][1], orders.names, left < 0 and 0 or 1}
            end
            local info = redis.call('XINFO', 'STREAM', KEYS[2])
            for n = 1, #info, 2 do
                if info[n] == 'last-generated-id' then return {{}, info[n + 1], {}, 0} end
            end
            return {{}, '0-0', {}, 0}
            """)
}
