-- Follows PostgreSQL: this hold is not being paid any more and has a deadline again.
-- KEYS[1] meta hash readiness
-- KEYS[2] holds hash live reservations
-- KEYS[3] deadlines zset when a hold may be released
-- ARGV[1] reservation_id text which hold
-- ARGV[2] until_ms int its deadline
-- ARGV[3] grace_ms int after the deadline that the fan sees
-- Answers done, unknown or not-ready.
local keys = {meta = KEYS[1], holds = KEYS[2], deadlines = KEYS[3]}
local id, until_ms, grace_ms = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
if not is_ready(keys.meta, keys.holds, keys.deadlines) then return 'not-ready' end
if not read_hold(keys, id) then return 'unknown' end
redis.call('ZADD', keys.deadlines, text(until_ms + grace_ms), id)
return 'done'
