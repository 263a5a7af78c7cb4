internal import Redis

extension QueueScripts {
    /// `charge(key, a minute, now in µs)` counts one write against a limit (GCRA, with a minute's worth at once): nil when
    /// it may pass, else after how many whole seconds the next one may.
    static let gcra = """
        local function charge(key, perMinute, now)
            local interval = 60000000 / perMinute
            local arrival = tonumber(redis.call('GET', key) or 0)
            if arrival < now then arrival = now end
            local ahead = arrival + interval - now
            if ahead > 60000000.5 then return math.max(1, math.ceil((ahead - 60000000) / 1000000)) end
            redis.call('SET', key, string.format('%.3f', arrival + interval),
                'PX', string.format('%d', ahead / 1000 + 2))
            return nil
        end
        """

    /// Counts writes against a limit that lies on another node of a cluster than they go to; accept, which does so where
    /// both lie together, can't reach it there.
    ///
    /// KEYS: 1 limit
    /// ARGV: 1 number of writes, 2 limit a minute
    /// Answers one item a write: 0, or the whole seconds after which it may come again.
    static let limit = RedisScript(
        name: "limit",
        source: """
            #!lua
            \(gcra)
            local time = redis.call('TIME')
            local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
            local answers = {}
            for n = 1, tonumber(ARGV[1]) do answers[n] = charge(KEYS[1], tonumber(ARGV[2]), now) or 0 end
            return answers
            """)

    /// Takes all writes that one ingress gathered for one partition.
    ///
    /// The only script that Redis may refuse at maxmemory: intake stops there, everything else goes on.
    ///
    /// KEYS: 1 meta, 2 clock, 3 stats, 4 backlog, 5–8 the lanes in `Lane` order, 9… limit keys
    /// ARGV: 1 number of writes, 2 backlog cap of an organization in this partition (0: none); then for each write:
    ///   lane (1–4), index of its limit key in KEYS (0: none), limit a minute, organization,
    ///   header before the stamp, header after the enqueued time, payload, the shed level that refuses it (0: none does)
    /// Answers `unseeded`, or one word a write with a space between each two: a stamp, `L` + whole seconds when limited,
    /// `S` when shed, `D` when its lane, kind or organization is drained. One text costs both sides less than a list.
    static let accept = RedisScript(
        name: "accept",
        source: """
            #!lua
            \(gcra)
            local meta = redis.call('HMGET', KEYS[1], 'seeded', 'shed', 'closed')
            if meta[1] ~= '1' then return 'unseeded' end
            local level = tonumber(meta[2] or '0')
            local names = {'verify.live', 'verify', 'write.live', 'write'}
            local time = redis.call('TIME')
            local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
            -- Whole numbers below 2^53: as %d they cost a third of what they do as %.0f.
            local enqueued = string.format('%d', now / 1000)
            local last = tonumber(redis.call('GET', KEYS[2]) or '0')
            local cap = tonumber(ARGV[2])
            local waiting, added, taken, answers = {}, {}, {0, 0, 0, 0}, {}
            local limited, shed, draining = 0, 0, 0
            local kinds, closed = {}, nil
            if meta[3] then
                for name, ends in string.gmatch(meta[3], '(%S+) (%d+)') do
                    if ends == '0' or tonumber(ends) * 1000 > now then
                        closed = closed or {}
                        closed[name] = true
                    end
                end
            end
            for n = 1, tonumber(ARGV[1]) do
                local a = 3 + (n - 1) * 8
                local lane, organization = tonumber(ARGV[a]), ARGV[a + 3]
                local refused = nil
                if closed and (closed['lane:' .. names[lane]] or closed['organization:' .. organization]
                    or closed['kind:' .. string.match(ARGV[a + 4], '^[^|]*')]) then
                    refused = 'D'
                    draining = draining + 1
                end
                local sheds = tonumber(ARGV[a + 7])
                if not refused and sheds > 0 and level >= sheds then
                    refused = 'S'
                    shed = shed + 1
                end
                if not refused and cap > 0 then
                    if not waiting[organization] then
                        waiting[organization] = tonumber(redis.call('HGET', KEYS[4], organization) or '0')
                    end
                    if waiting[organization] + (added[organization] or 0) >= cap then
                        refused = 'S'
                        shed = shed + 1
                    end
                end
                local limit = tonumber(ARGV[a + 1])
                if not refused and limit > 0 then
                    local seconds = charge(KEYS[limit], tonumber(ARGV[a + 2]), now)
                    if seconds then
                        refused = 'L' .. string.format('%d', seconds)
                        limited = limited + 1
                    end
                end
                if refused then
                    answers[n] = refused
                else
                    last = math.max(last + 1, now)
                    local stamp = string.format('%d', last)
                    redis.call('XADD', KEYS[4 + lane], '*',
                        'h', ARGV[a + 4] .. '|' .. stamp .. '|0|' .. organization .. '|' .. enqueued .. '|' .. ARGV[a + 5],
                        'p', ARGV[a + 6])
                    added[organization] = (added[organization] or 0) + 1
                    kinds[ARGV[a + 4]] = (kinds[ARGV[a + 4]] or 0) + 1
                    taken[lane] = taken[lane] + 1
                    answers[n] = stamp
                end
            end
            for organization, count in pairs(added) do redis.call('HINCRBY', KEYS[4], organization, count) end
            for kind, count in pairs(kinds) do
                redis.call('HINCRBY', KEYS[4], 'kind:' .. string.match(kind, '^[^|]*'), count)
            end
            for lane = 1, 4 do
                if taken[lane] > 0 then redis.call('HINCRBY', KEYS[3], 'accepted:' .. names[lane], taken[lane]) end
            end
            if limited > 0 then redis.call('HINCRBY', KEYS[3], 'limited', limited) end
            if shed > 0 then redis.call('HINCRBY', KEYS[3], 'shed', shed) end
            if draining > 0 then redis.call('HINCRBY', KEYS[3], 'draining', draining) end
            redis.call('SET', KEYS[2], string.format('%d', last))
            return table.concat(answers, ' ')
            """)
}
