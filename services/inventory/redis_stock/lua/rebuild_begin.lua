-- Begins a rebuild under a new epoch: deletes the stock, and gives each key that may be empty its marker.
-- KEYS[1] meta hash readiness, epoch
-- KEYS[2] counts hash per section
-- KEYS[3] holds hash live reservations
-- KEYS[4] deadlines zset when a hold may be released
-- KEYS[5] usage hash per holder
-- KEYS[6] revoked zset revoked passes
-- KEYS[7] gone hash reservations that ended of late
-- KEYS[8] gone_before hash those that ended before
-- KEYS[9+] emptied list all other keys of the event
-- ARGV[1] epoch int of this rebuild
-- ARGV[2] clock_offset_ms int moves the clock
-- Answers done, or superseded by a higher epoch.
local epoch = tonumber(ARGV[1])
if tonumber(redis.call('HGET', keys.meta, 'epoch') or 0) > epoch then return 'superseded' end
redis.call('HSET', keys.meta, 'ready', '0', 'epoch', text(epoch), 'holding', '0')
local _, began_at = clock(keys.meta, ARGV[2])
redis.call('HSET', keys.meta, 'rebuild_renewed_at', text(began_at))
for i = 2, #KEYS do redis.call('UNLINK', KEYS[i]) end
for _, hash in ipairs({keys.counts, keys.holds, keys.usage, keys.gone, keys.gone_before}) do
  redis.call('HSET', hash, 'epoch', text(epoch))
end
for _, zset in ipairs({keys.deadlines, keys.revoked}) do redis.call('ZADD', zset, '+inf', 'epoch') end
return 'done'
