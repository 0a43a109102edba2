-- Lets the next tick call some places beyond the rate. What it cannot call is forgotten: nobody is surprised later.
-- Answers {'ok', handed}: how many were called by hand before. Or {'not-ready'|'stale-epoch'}.
-- KEYS[1] room hash the room
-- ARGV[1] epoch int the epoch the caller believes in
-- ARGV[2] count int how many
local r = redis.call('HMGET', KEYS[1], 'ready', 'epoch', 'handed')
if r[1] ~= '1' then return {'not-ready'} end
if r[2] ~= ARGV[1] then return {'stale-epoch'} end
redis.call('HSET', KEYS[1], 'by_hand', ARGV[2])
return {'ok', tonumber(r[3]) or 0}
