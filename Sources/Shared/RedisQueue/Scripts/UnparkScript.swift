internal import Redis

extension QueueScripts {
    /// Looks at a part of the parked jobs and moves back into their lane those that nothing pauses any more, in the
    /// order of their stamps. What is still paused stays, and the look goes on behind it.
    ///
    /// KEYS: 1 meta, 2 parked, 3 lane
    /// ARGV: 1 most jobs, 2 where to begin, 3 mark of the orders under which all were looked at before: nothing is to
    ///   be found while they stand
    /// Answers {parked now, moved, where to go on or empty at the end, mark of the orders}.
    static let unpark = RedisScript(
        name: "unpark",
        source: """
            #!lua flags=allow-oom
            \(pauses)
            local parked = redis.call('XLEN', KEYS[2])
            if parked == 0 then return {0, 0, '', ''} end
            local found = pauses(KEYS[1])
            if found.mark == ARGV[3] then return {parked, 0, '', found.mark} end
            local entries = redis.call('XRANGE', KEYS[2], ARGV[2], '+', 'COUNT', ARGV[1])
            local free = {}
            for _, entry in ipairs(entries) do
                local header = entry[2][2]
                if not isPaused(found, header) then
                    local stamp = tonumber(string.match(header, '^[^|]*|[^|]*|([^|]*)|') or '0') or 0
                    free[#free + 1] = {id = entry[1], stamp = stamp, header = header, payload = entry[2][4]}
                end
            end
            table.sort(free, function(one, other) return one.stamp < other.stamp end)
            for _, job in ipairs(free) do
                redis.call('XADD', KEYS[3], '*', 'h', job.header, 'p', job.payload)
                redis.call('XDEL', KEYS[2], job.id)
            end
            local last = ''
            if #entries == tonumber(ARGV[1]) then last = '(' .. entries[#entries][1] end
            return {parked - #free, #free, last, found.mark}
            """)
}
