-- Renews the rebuild's lease, so that no other process begins a rebuild.
-- KEYS[1] meta hash epoch
-- ARGV[1] epoch int of this rebuild
-- ARGV[2] clock_offset_ms int moves the clock
-- Answers done or superseded.
if redis.call('HGET', keys.meta, 'epoch') ~= ARGV[1] then return 'superseded' end
local _, redis_ms = clock(keys.meta, ARGV[2])
redis.call('HSET', keys.meta, 'rebuild_renewed_at', text(redis_ms))
return 'done'
