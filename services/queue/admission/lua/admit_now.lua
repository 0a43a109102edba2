-- Allows the next tick to call some places beyond the rate. What that tick cannot call lapses, so nobody is called
-- later by surprise. Answers {'ok', manually_admitted}, the total so far; or {'not-ready'|'stale-epoch'}.
-- KEYS[1] room hash the room
-- ARGV[1] epoch int the epoch the caller knows
-- ARGV[2] count int how many
local r = redis.call('HMGET', KEYS[1], 'ready', 'epoch', 'manually_admitted')
if r[1] ~= '1' then return {'not-ready'} end
if r[2] ~= ARGV[1] then return {'stale-epoch'} end
redis.call('HSET', KEYS[1], 'admit_now', ARGV[2])
return {'ok', tonumber(r[3]) or 0}
