internal import Redis

extension QueueScripts {
    /// Throws away jobs that no worker has, in one place of one lane, and asks in the same step whether what it purges is
    /// paused.
    static let purge = RedisScript(name: "purge", source: "#!lua flags=allow-oom\n" + throwAway)

    /// Counts what a purge would throw away. It writes nothing, so that it runs on a read-only replica too.
    static let countPurge = RedisScript(name: "count-purge", source: "#!lua flags=no-writes,allow-oom\n" + throwAway)

    /// KEYS: 1 meta, 2 the place (lane, due or parked), 3 later, 4 backlog, 5 stats, 6 alone
    /// ARGV: 1 `lane`, `due` or `parked`, 2 group, 3 lane name, 4 most entries, 5 where to go on: a cursor answered before,
    ///   or empty, 6 kind or empty, 7 organization or empty, 8 `1` to purge, else it is a count, then names of orders of
    ///   which one must stand (none: nothing need be paused)
    /// Answers `running` when nothing of it is paused, or {looked at, fitting, cursor or empty at the end}.
    private static let throwAway = """
        \(pauses)
        \(endBacklog)
        local place, most, purging = ARGV[1], tonumber(ARGV[4]), ARGV[8] == '1'
        if purging and #ARGV > 8 then
            local found, held = pauses(KEYS[1]), false
            for n = 9, #ARGV do held = held or found.orders[ARGV[n]] end
            if not held then return 'running' end
        end
        local function parts(id)
            local ms, number = string.match(id, '^(%d+)-(%d+)$')
            return tonumber(ms), tonumber(number)
        end
        local entries, cursor = {}, ''
        if place == 'due' then
            local from = tonumber(ARGV[5]) or 0
            local stamps = redis.call('ZRANGE', KEYS[2], from, from + most - 1)
            if #stamps > 0 then
                local jobs = redis.call('HMGET', KEYS[3], unpack(stamps))
                for n, stamp in ipairs(stamps) do
                    entries[n] = {id = stamp, header = jobs[n] and string.match(jobs[n], '^[^\\n]*') or ''}
                end
            end
        else
            local lastMs, lastNumber = -1, -1
            if place == 'lane' then
                -- What a group has not been handed yet lies behind its last id; the rest is in workers' hands.
                local groups = redis.pcall('XINFO', 'GROUPS', KEYS[2])
                if groups.err then return {0, 0, ''} end
                for _, group in ipairs(groups) do
                    local fields = {}
                    for n = 1, #group, 2 do fields[group[n]] = group[n + 1] end
                    if fields.name == ARGV[2] then lastMs, lastNumber = parts(fields['last-delivered-id']) end
                end
            end
            local from = ARGV[5]
            if from == '' then
                from = lastMs < 0 and '-' or string.format('(%.0f-%.0f', lastMs, lastNumber)
            end
            for n, entry in ipairs(redis.call('XRANGE', KEYS[2], from, '+', 'COUNT', most)) do
                local ms, number = parts(entry[1])
                entries[n] = {
                    id = entry[1], header = entry[2][2],
                    held = ms < lastMs or (ms == lastMs and number <= lastNumber)}
            end
        end
        local ids, stamps, owners = {}, {}, {}
        for _, entry in ipairs(entries) do
            local kind, stamp, organization = string.match(
                entry.header, '^([^|]*)|[^|]*|([^|]*)|[^|]*|([^|]*)|')
            kind, stamp, organization = kind or '', stamp or '', organization or ''
            if not entry.held and (ARGV[6] == '' or ARGV[6] == kind)
                and (ARGV[7] == '' or ARGV[7] == organization) then
                ids[#ids + 1] = entry.id
                stamps[#ids] = stamp
                local owner = kind .. '|' .. organization
                owners[owner] = (owners[owner] or 0) + 1
            end
        end
        if #entries == most then
            if place ~= 'due' then
                cursor = '(' .. entries[#entries].id
            else
                cursor = string.format('%.0f', (tonumber(ARGV[5]) or 0) + #entries - (purging and #ids or 0))
            end
        end
        if purging and #ids > 0 then
            if place == 'due' then
                redis.call('ZREM', KEYS[2], unpack(ids))
                redis.call('HDEL', KEYS[3], unpack(ids))
            else
                redis.call('XDEL', KEYS[2], unpack(ids))
            end
            if redis.call('EXISTS', KEYS[6]) == 1 then redis.call('HDEL', KEYS[6], unpack(stamps)) end
            for owner, count in pairs(owners) do endBacklog(KEYS[4], owner, count) end
            redis.call('HINCRBY', KEYS[5], 'purged:' .. ARGV[3], #ids)
        end
        return {#entries, #ids, cursor}
        """
}
