internal import Redis

extension QueueScripts {
    /// Puts dead letters back into their lane and takes them off the stream of dead letters, in one step. What was put
    /// back is noted, so that a call repeated in doubt adds nothing twice; the notes outlive every letter.
    ///
    /// Redis may refuse it at maxmemory, as it refuses intake: it adds work, and the letters lie safe elsewhere.
    ///
    /// KEYS: 1 meta, 2 backlog, 3 stats, 4 redriven, 5 lane, 6 dead
    /// ARGV: 1 lane name, 2 lifetime of the notes in ms, then for each letter:
    ///   its entry among the dead, organization, header, payload
    /// Answers `unseeded`, or one number a letter: 1 added, 0 added before.
    static let redrive = RedisScript(
        name: "redrive",
        source: """
            #!lua
            if redis.call('HGET', KEYS[1], 'seeded') ~= '1' then return 'unseeded' end
            local answers, added, sum = {}, {}, 0
            for a = 3, #ARGV, 4 do
                local new = redis.call('HSETNX', KEYS[4], ARGV[1] .. ' ' .. ARGV[a], '1')
                if new == 1 then
                    redis.call('XDEL', KEYS[6], ARGV[a])
                    redis.call('XADD', KEYS[5], '*', 'h', ARGV[a + 2], 'p', ARGV[a + 3])
                    added[ARGV[a + 1]] = (added[ARGV[a + 1]] or 0) + 1
                    local kind = 'kind:' .. string.match(ARGV[a + 2], '^[^|]*')
                    added[kind] = (added[kind] or 0) + 1
                    sum = sum + 1
                end
                answers[#answers + 1] = new
            end
            for field, count in pairs(added) do redis.call('HINCRBY', KEYS[2], field, count) end
            if sum > 0 then
                redis.call('HINCRBY', KEYS[3], 'redriven:' .. ARGV[1], sum)
                redis.call('PEXPIRE', KEYS[4], ARGV[2])
            end
            return answers
            """)

    /// Notes how far a stream of dead letters is copied, and trims what is copied and too old or too much, from the
    /// oldest. What lies beyond the note is never touched.
    ///
    /// Whole nodes of the stream go first, by a bounded number of entries a call; a short stream is cut exactly.
    ///
    /// KEYS: 1 dead, 2 copied
    /// ARGV: 1 lane name, 2 id of the last entry copied (empty: no news), 3 oldest ms to keep, 4 most bytes,
    ///   5 most entries a call
    /// Answers how many entries went.
    static let trimDead = RedisScript(
        name: "trim-dead",
        source: """
            #!lua flags=allow-oom
            local function parts(id)
                local ms, number = string.match(id, '^(%d+)-(%d+)$')
                return tonumber(ms), tonumber(number)
            end
            local copied = redis.call('HGET', KEYS[2], ARGV[1])
            if ARGV[2] ~= '' then
                local newer = true
                if copied then
                    local ms, number = parts(ARGV[2])
                    local oldMs, oldNumber = parts(copied)
                    newer = ms > oldMs or (ms == oldMs and number > oldNumber)
                end
                if newer then
                    copied = ARGV[2]
                    redis.call('HSET', KEYS[2], ARGV[1], copied)
                end
            end
            if not copied then return 0 end
            local most = tonumber(ARGV[5])
            local ms, number = parts(copied)
            local beyond = string.format('%.0f-%.0f', ms, number + 1)
            local threshold = beyond
            if tonumber(ARGV[3]) <= ms then threshold = ARGV[3] .. '-0' end
            local gone = redis.call('XTRIM', KEYS[1], 'MINID', '~', threshold, 'LIMIT', most)
            local function heavy()
                return (redis.call('MEMORY', 'USAGE', KEYS[1]) or 0) > tonumber(ARGV[4])
            end
            local stuck = false
            while gone < most and heavy() and not stuck do
                local went = redis.call('XTRIM', KEYS[1], 'MINID', '~', beyond, 'LIMIT', 100)
                stuck = went == 0
                gone = gone + went
            end
            if redis.call('XLEN', KEYS[1]) <= most then
                if stuck then threshold = beyond end
                gone = gone + redis.call('XTRIM', KEYS[1], 'MINID', '=', threshold)
            end
            return gone
            """)
}
