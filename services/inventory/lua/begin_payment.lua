-- The ledger says this hold is being paid: it has no deadline any more.
-- KEYS[1] gate hash readiness
-- KEYS[2] holds hash live reservations
-- KEYS[3] deadlines zset when a hold may be released
-- ARGV[1] reservation_id text which hold
-- ARGV[2] until_ms int when its order expires
-- Answers done, unknown or not-ready.
local keys = {gate = KEYS[1], holds = KEYS[2], deadlines = KEYS[3]}
local id, until_ms = ARGV[1], tonumber(ARGV[2])
if not is_ready(keys.gate) then return 'not-ready' end
local hold = read_hold(keys, id)
if not hold then return 'unknown' end
hold['until'] = until_ms
write_hold(keys, id, hold)
redis.call('ZREM', keys.deadlines, id)
return 'done'
