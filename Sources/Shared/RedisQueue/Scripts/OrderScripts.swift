internal import Redis

extension QueueScripts {
    /// The orders in force, for the scripts that heed them. `pauses(meta)` answers whether the partition is seeded, what
    /// is paused (`lane:write`, `kind:identify`, `organization:demo`) by name and as a list, and a mark that differs
    /// whenever what is paused does: the number of orders ever given, and what of them has not run out. An order that
    /// ran out is forgotten by whoever comes across it, unless `keep` is given: a script that only reads. One that can't
    /// be read stands until it is lifted.
    static let pauses = """
        local function pauses(meta, keep)
            local time = redis.call('TIME')
            local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
            local fields = redis.call('HGETALL', meta)
            local found = {seeded = false, orders = {}, names = {}, mark = '0'}
            for n = 1, #fields, 2 do
                local field, value = fields[n], fields[n + 1]
                if field == 'seeded' then
                    found.seeded = value == '1'
                elseif field == 'orders' then
                    found.mark = value
                elseif string.sub(field, 1, 6) == 'pause:' then
                    local read, order = pcall(cjson.decode, value)
                    if not read or type(order) ~= 'table' then order = {} end
                    local ends = order['until']
                    if type(ends) == 'number' and ends <= now then
                        if not keep then redis.call('HDEL', meta, field) end
                    else
                        local name = string.sub(field, 7)
                        found.orders[name] = order
                        found.names[#found.names + 1] = name
                    end
                end
            end
            found.mark = found.mark .. ' ' .. table.concat(found.names, ' ')
            return found
        end
        local function isPaused(found, header)
            local kind, organization = string.match(header, '^([^|]*)|[^|]*|[^|]*|[^|]*|([^|]*)|')
            return kind and (found.orders['kind:' .. kind] or found.orders['organization:' .. organization])
        end
        local function encoded(owner, reason, at, ends)
            return cjson.encode({owner = owner, reason = reason, at = tonumber(at), ['until'] = tonumber(ends)})
        end
        """

    /// The drain orders, for the scripts that change or list them; used together with `pauses`. `drains(meta)` answers
    /// them as `pauses` does, and unless `keep` is given keeps the field `closed` in step: what intake refuses,
    /// `name until-ms` (0: no end) a line, so short that the accept script can read it at each call.
    static let drains = """
        local function drains(meta, keep)
            local time = redis.call('TIME')
            local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
            local fields = redis.call('HGETALL', meta)
            local found, closed, stands = {orders = {}, names = {}}, {}, ''
            for n = 1, #fields, 2 do
                local field, value = fields[n], fields[n + 1]
                if field == 'closed' then
                    stands = value
                elseif string.sub(field, 1, 6) == 'drain:' then
                    local read, order = pcall(cjson.decode, value)
                    if not read or type(order) ~= 'table' then order = {} end
                    local ends = type(order['until']) == 'number' and order['until'] or nil
                    if ends and ends <= now then
                        if not keep then redis.call('HDEL', meta, field) end
                    else
                        local name = string.sub(field, 7)
                        found.orders[name] = order
                        found.names[#found.names + 1] = name
                        closed[#closed + 1] = name .. ' ' .. string.format('%.0f', ends or 0)
                    end
                end
            end
            if keep then return found end
            table.sort(closed)
            local text = table.concat(closed, '\\n')
            if text == '' and stands ~= '' then
                redis.call('HDEL', meta, 'closed')
            elseif text ~= stands then
                redis.call('HSET', meta, 'closed', text)
            end
            return found
        end
        """

    /// Gives an order; one that does the same to the same is replaced.
    ///
    /// KEYS: 1 meta, 2 changes
    /// ARGV: 1 name, 2 owner, 3 reason, 4 at ms, 5 until ms or empty, 6 `pause` or `drain`, 7 most orders,
    ///   8 `1` to note the change
    /// Answers 0 when there are too many orders already.
    static let order = RedisScript(
        name: "order",
        source: """
            #!lua flags=allow-oom
            \(pauses)
            \(drains)
            local paused, drained = pauses(KEYS[1]), drains(KEYS[1])
            local same = ARGV[6] == 'drain' and drained or paused
            if not same.orders[ARGV[1]] and #paused.names + #drained.names >= tonumber(ARGV[7]) then return 0 end
            redis.call('HSET', KEYS[1], ARGV[6] .. ':' .. ARGV[1], encoded(ARGV[2], ARGV[3], ARGV[4], ARGV[5]))
            redis.call('HINCRBY', KEYS[1], 'orders', 1)
            drains(KEYS[1])
            if ARGV[8] == '1' then
                redis.call('XADD', KEYS[2], '*', 'action', ARGV[6], 'name', ARGV[1], 'owner', ARGV[2],
                    'reason', ARGV[3], 'at', ARGV[4], 'until', ARGV[5])
            end
            return 1
            """)

    /// Lifts an order. The change is noted even when there was none here: Postgres may know more.
    ///
    /// KEYS: 1 meta, 2 changes
    /// ARGV: 1 name, 2 owner, 3 at ms, 4 `1` to note the change, 5 `pause` or `drain`: what is lifted, 6 `1` when the queue
    ///   is known to have it, else `0`: the note then says so
    /// Answers 1 when there was one.
    static let resume = RedisScript(
        name: "resume",
        source: """
            #!lua flags=allow-oom
            \(drains)
            local lifted = redis.call('HDEL', KEYS[1], ARGV[5] .. ':' .. ARGV[1])
            redis.call('HINCRBY', KEYS[1], 'orders', 1)
            drains(KEYS[1])
            if ARGV[4] == '1' then
                redis.call('XADD', KEYS[2], '*', 'action', 'resume', 'lifts', ARGV[5], 'name', ARGV[1],
                    'owner', ARGV[2], 'reason', '', 'at', ARGV[3], 'until', '', 'stood', ARGV[6])
            end
            return lifted
            """)

    /// The orders in force in one partition. It writes nothing, so that it runs on a read-only replica and where Redis
    /// can't save.
    ///
    /// KEYS: 1 meta
    /// Answers {seeded 0 or 1, {name, owner, reason, at, until, `pause` or `drain`}…}; what an order doesn't say is
    /// empty.
    static let orders = RedisScript(
        name: "orders",
        source: """
            #!lua flags=no-writes,allow-oom
            \(pauses)
            \(drains)
            local function text(value)
                if type(value) == 'number' then return string.format('%.0f', value) end
                return type(value) == 'string' and value or ''
            end
            local found = pauses(KEYS[1], true)
            local answer = {found.seeded and 1 or 0}
            local function list(found, action)
                for _, name in ipairs(found.names) do
                    local order = found.orders[name]
                    answer[#answer + 1] = {
                        name, text(order.owner), text(order.reason), text(order.at), text(order['until']), action}
                end
            end
            list(found, 'pause')
            list(drains(KEYS[1], true), 'drain')
            return answer
            """)
}
