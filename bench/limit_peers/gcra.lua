-- The generic cell rate algorithm, as scripts for Redis have it: one key, the theoretical arrival time of the next cell.
-- ARGV: seconds a token, burst in tokens, cost. Answers {limited, remaining, seconds to wait or -1}.
local emission, burst, cost = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local time = redis.call('TIME')
local now = time[1] + time[2] / 1e6
local after = math.max(tonumber(redis.call('GET', KEYS[1]) or now), now) + cost * emission
local wait = after - burst * emission - now
if wait > 0 then
    return { 1, 0, math.ceil(wait) }
end
redis.call('SET', KEYS[1], string.format('%.6f', after), 'PX', math.ceil(1000 * (after - now)))
return { 0, math.floor(burst - (after - now) / emission), -1 }
