-- Decides for one subject under one contract: every policy must allow, or nothing is taken.
--
-- KEYS: one of each policy; the last notes which grants were corrected. All are in one hash slot.
-- ARGV: the operation; the policies (JSON, of limiting/store/rules.py); the cost; the grant's name; the instant of the
-- grant, us; the instant of now, us ("": the server's, which all nodes share).
-- Answers {what was done, now, what each policy says...}. Done: 1 allowed, 0 refused, -1 the grant is too old, -2 it was
-- used before.
--
-- Amounts of buckets are exact: {high, low} is high * 1e14 + low units of 1e-12 tokens, 0 <= low < 1e14. So rate
-- (micro-tokens/s) times time (us) is a whole number of units, and no double holds more than 2^53.

local BASE, HALF = 1e14, 1e7
local WITHIN_US = 60e6 -- how old a grant may be that is corrected

local operation, rules = ARGV[1], cjson.decode(ARGV[2])
local cost, grant, granted_at, now = tonumber(ARGV[3]), ARGV[4], tonumber(ARGV[5]), tonumber(ARGV[6])
if not now then
    local time = redis.call('TIME')
    now = time[1] * 1e6 + time[2]
end

local function amount(high, low)
    local carry = math.floor(low / BASE)
    return { high + carry, low - carry * BASE }
end

local function plus(one, other) return amount(one[1] + other[1], one[2] + other[2]) end
local function minus(one, other) return amount(one[1] - other[1], one[2] - other[2]) end
local function less(one, other) return one[1] < other[1] or (one[1] == other[1] and one[2] < other[2]) end
local function least(one, other) return less(one, other) and one or other end

local function product(one, other)
    local one_low, other_low = one % HALF, other % HALF
    local one_high, other_high = (one - one_low) / HALF, (other - other_low) / HALF
    local middle = one_high * other_low + one_low * other_high
    local rest = middle % HALF
    return amount(one_high * other_high + (middle - rest) / HALF, one_low * other_low + rest * HALF)
end

local function tokens(count) return product(count, 1e12) end
local function whole(number) return string.format('%.0f', number) end

-- After `us` the key says no more than that there is none. A second on top: clocks of servers differ.
local function expire(key, us) redis.call('PEXPIRE', key, whole(math.min(math.max(us, 0) / 1000, 1e14) + 1000)) end

-- Buckets and paces: "high low at", the fill at an instant.

local function fill_of(key, rule)
    local high, low, at = string.match(redis.call('GET', key) or '', '^(%-?%d+) (%d+) (%d+)$')
    if not high then
        return rule.full and rule.burst or { 0, 0 }, now, not rule.full
    end
    at = tonumber(at)
    local gain = product(rule.rate, math.max(0, now - at))
    return least(rule.burst, plus({ tonumber(high), tonumber(low) }, gain)), math.max(at, now)
end

local function save_fill(key, rule, fill, at)
    redis.call('SET', key, whole(fill[1]) .. ' ' .. whole(fill[2]) .. ' ' .. whole(at))
    local missing = minus(rule.burst, fill)
    expire(key, (missing[1] * BASE + missing[2]) / rule.rate)
end

local bucket = {}

function bucket.look(key, rule)
    local fill, at, is_unsaved = fill_of(key, rule)
    if is_unsaved and operation == 'take' then
        save_fill(key, rule, fill, at) -- what begins empty fills from its first request on, a refused one too
    end
    local within = rule.max_wait and plus(fill, product(rule.rate, rule.max_wait)) or fill
    return not less(within, tokens(cost)), fill
end

function bucket.take(key, rule)
    local fill, at = fill_of(key, rule)
    fill = minus(fill, tokens(cost))
    save_fill(key, rule, fill, at)
    return fill
end

function bucket.charge(key, rule, more)
    local fill, at = fill_of(key, rule)
    local wanted = more < 0 and plus(fill, tokens(-more)) or minus(fill, tokens(more))
    local debt = rule.debt and least(fill, minus({ 0, 0 }, rule.debt))
    if debt and less(wanted, debt) then
        wanted = debt
    end
    save_fill(key, rule, least(wanted, rule.burst), at)
end

-- Windows: a hash of counts by the number of their slice.

local window = {}

local function slices_of(key, rule)
    local passed = now % rule.length
    local number, found = (now - passed) / rule.length, redis.call('HGETALL', key)
    local counts = {}
    for i = 1, #found, 2 do
        counts[tonumber(found[i])] = tonumber(found[i + 1])
    end
    return number, passed, counts
end

local function says(counts)
    local said = {}
    for number, count in pairs(counts) do
        said[#said + 1] = number
        said[#said + 1] = count
    end
    return said
end

function window.look(key, rule)
    local number, passed, counts = slices_of(key, rule)
    local inside, leaving = 0, 0
    for slice, count in pairs(counts) do
        if number - slice < rule.slices then
            inside = inside + count
        elseif number - slice == rule.slices and rule.weighted then
            leaving = count
        end
    end
    local room = rule.quota - inside - cost
    local allowed = room >= leaving
        or (room >= 0 and not less(product(room, rule.length), product(leaving, rule.length - passed)))
    return allowed, says(counts)
end

function window.take(key, rule)
    if cost > 0 then
        window.charge(key, rule, cost)
    end
    local _, _, counts = slices_of(key, rule)
    return says(counts)
end

function window.charge(key, rule, more)
    local number, _, counts = slices_of(key, rule)
    local oldest = number - rule.slices
    for slice in pairs(counts) do
        if slice < oldest then
            redis.call('HDEL', key, whole(slice))
        end
    end
    for slice = number, oldest, -1 do -- what is given back is taken from the newest
        local before = counts[slice] or 0
        local after = math.min(math.max(before + more, 0), 4294967295)
        if after ~= before then
            redis.call('HSET', key, whole(slice), whole(after))
        end
        more = more - (after - before)
        if more >= 0 then
            break
        end
    end
    expire(key, rule.length * (rule.slices + 1))
end

-- Logs and open requests: a sorted set of when each token of them leaves.

local leaving = {}

local function ends(key, place)
    local found = redis.call('ZRANGE', key, place, place, 'WITHSCORES')
    return math.max(now, tonumber(found[2]) or now)
end

function leaving.look(key, rule)
    local used = redis.call('ZCOUNT', key, '(' .. whole(now), '+inf')
    local over = used + cost - rule.quota
    if over <= 0 then
        return true, { used, now, ends(key, -1) }
    end
    local gone = redis.call('ZCARD', key) - used
    return false, { used, cost <= rule.quota and ends(key, gone + over - 1) or now, ends(key, -1) }
end

local function add(key, rule, count)
    for number = 1, count do
        redis.call('ZADD', key, whole(now + rule.lasts), grant .. ':' .. number)
    end
end

function leaving.take(key, rule)
    redis.call('ZREMRANGEBYSCORE', key, '-inf', whole(now))
    add(key, rule, cost)
    expire(key, rule.lasts)
    return { redis.call('ZCARD', key), now, ends(key, -1) }
end

function leaving.charge(key, rule, more)
    if not rule.charged then
        return
    end
    redis.call('ZREMRANGEBYSCORE', key, '-inf', whole(now))
    if more < 0 then
        redis.call('ZPOPMAX', key, -more)
    else
        grant = grant .. ':more'
        add(key, rule, math.min(more, rule.quota))
        expire(key, rule.lasts)
    end
end

local kinds = { bucket = bucket, window = window, leaving = leaving }

local function each(what, ...)
    for i, rule in ipairs(rules) do
        kinds[rule.kind][what](KEYS[i], rule, ...)
    end
end

if operation == 'correct' then
    if now - granted_at > WITHIN_US then
        return { -1, now }
    end
    if not redis.call('SET', KEYS[#KEYS], '', 'NX', 'PX', whole(WITHIN_US / 1000)) then
        return { -2, now }
    end
end
if operation == 'correct' or operation == 'charge' then
    each('charge', cost)
    return { 1, now }
end
if operation == 'release' then
    local gone = 0
    for i, rule in ipairs(rules) do
        if rule.kind == 'leaving' and not rule.charged then
            for number = 1, cost do
                gone = gone + redis.call('ZREM', KEYS[i], grant .. ':' .. number)
            end
        end
    end
    return { gone > 0 and 1 or -2, now }
end

local allowed, said = 1, {}
for i, rule in ipairs(rules) do
    local fits, state = kinds[rule.kind].look(KEYS[i], rule)
    said[i] = { fits and 1 or 0, state }
    if not fits then
        allowed = 0
    end
end
if operation == 'take' and allowed == 1 then
    for i, rule in ipairs(rules) do
        said[i][2] = kinds[rule.kind].take(KEYS[i], rule)
    end
end
return { allowed, now, unpack(said) }
