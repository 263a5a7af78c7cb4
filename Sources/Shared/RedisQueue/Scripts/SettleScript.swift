internal import Redis

extension QueueScripts {
    /// Takes jobs that ended off the backlog, of their kind and of their organization. A count never falls below what is
    /// there: a field at zero is removed.
    static let endBacklog = """
        local function endBacklog(backlog, owner, count)
            local kind, organization = string.match(owner, '^([^|]*)|(.*)$')
            for _, field in ipairs({'kind:' .. kind, organization}) do
                if redis.call('HINCRBY', backlog, field, -count) <= 0 then redis.call('HDEL', backlog, field) end
            end
        end
        """

    /// Ends a worker's hold on jobs of one lane.
    ///
    /// Retry and dead first ask whether the entry is still this worker's (a late settle by a worker that lost the job
    /// must resurrect nothing), then acknowledge, and move only if that acknowledged something. Done and forward need
    /// no owner: the effect is there, whoever brought it. An entry is deleted with its acknowledgement, so that the
    /// length of the stream less the pending ones is what waits.
    ///
    /// A job to be parked whose pause ended meanwhile goes to the end of its lane: nobody would look for it among the
    /// parked ones. Its starts alone are not forgotten.
    ///
    /// KEYS: 1 lane, 2 due, 3 later, 4 dead, 5 backlog, 6 stats, 7 alone, 8–11 the lanes in `Lane` order,
    ///   12 meta, 13 parked
    /// ARGV: 1 group, 2 consumer, 3 lane name, then for each job:
    ///   `done` id owner stamp
    ///   `forward` id stamp target lane (1–4) header payload
    ///   `retry` id stamp delay ms header payload
    ///   `park` id header payload
    ///   `dead` id owner stamp header payload reason text
    /// The owner is `kind|organization`, as the backlog counts them.
    /// Answers how many jobs this call ended, moved or buried.
    static let settle = RedisScript(
        name: "settle",
        source: """
            #!lua flags=allow-oom
            \(pauses)
            local group, me, lane = ARGV[1], ARGV[2], ARGV[3]
            local time = redis.call('TIME')
            local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
            local counts = {done = 0, forward = 0, retry = 0, park = 0, dead = 0}
            local ended = {}
            local settled = 0
            local orders = nil
            local function mine(id)
                local held = redis.call('XPENDING', KEYS[1], group, id, id, 1)
                return held[1] and held[1][2] == me
            end
            local function release(id)
                if redis.call('XACK', KEYS[1], group, id) == 0 then return false end
                redis.call('XDEL', KEYS[1], id)
                return true
            end
            local function count(what, stamp)
                counts[what] = counts[what] + 1
                settled = settled + 1
                redis.call('HDEL', KEYS[7], stamp)
            end
            local a = 4
            local ids, owners = {}, {}
            while ARGV[a] == 'done' do
                ids[#ids + 1] = ARGV[a + 1]
                owners[#ids] = ARGV[a + 2]
                a = a + 4
            end
            if #ids > 0 then
                local acknowledged = redis.call('XACK', KEYS[1], group, unpack(ids))
                if acknowledged == #ids then
                    redis.call('XDEL', KEYS[1], unpack(ids))
                    for n = 1, #ids do
                        ended[owners[n]] = (ended[owners[n]] or 0) + 1
                    end
                    counts.done = #ids
                else
                    for n = 1, #ids do
                        if redis.call('XDEL', KEYS[1], ids[n]) == 1 then
                            ended[owners[n]] = (ended[owners[n]] or 0) + 1
                            counts.done = counts.done + 1
                        end
                    end
                end
                settled = counts.done
                if redis.call('EXISTS', KEYS[7]) == 1 then
                    for n = 1, #ids do redis.call('HDEL', KEYS[7], ARGV[4 + (n - 1) * 4 + 3]) end
                end
            end
            while ARGV[a] do
                local what, id = ARGV[a], ARGV[a + 1]
                if what == 'forward' then
                    if release(id) then
                        redis.call('XADD', KEYS[7 + tonumber(ARGV[a + 3])], '*', 'h', ARGV[a + 4], 'p', ARGV[a + 5])
                        count(what, ARGV[a + 2])
                    end
                    a = a + 6
                elseif what == 'retry' then
                    if mine(id) and release(id) then
                        redis.call('ZADD', KEYS[2], now + tonumber(ARGV[a + 3]), ARGV[a + 2])
                        redis.call('HSET', KEYS[3], ARGV[a + 2], ARGV[a + 4] .. '\\n' .. ARGV[a + 5])
                        count(what, ARGV[a + 2])
                    end
                    a = a + 6
                elseif what == 'park' then
                    if mine(id) and release(id) then
                        orders = orders or pauses(KEYS[12])
                        local target = isPaused(orders, ARGV[a + 2]) and KEYS[13] or KEYS[1]
                        redis.call('XADD', target, '*', 'h', ARGV[a + 2], 'p', ARGV[a + 3])
                        counts.park = counts.park + 1
                        settled = settled + 1
                    end
                    a = a + 4
                else
                    if mine(id) and release(id) then
                        redis.call('XADD', KEYS[4], '*', 'h', ARGV[a + 4], 'p', ARGV[a + 5],
                            'reason', ARGV[a + 6], 'text', ARGV[a + 7])
                        ended[ARGV[a + 2]] = (ended[ARGV[a + 2]] or 0) + 1
                        count('dead', ARGV[a + 3])
                    end
                    a = a + 8
                end
            end
            \(endBacklog)
            for owner, count in pairs(ended) do endBacklog(KEYS[5], owner, count) end
            for what, count in pairs(counts) do
                if count > 0 then redis.call('HINCRBY', KEYS[6], what .. ':' .. lane, count) end
            end
            return settled
            """)
}
