-- Begins to fill the gate under a new epoch: everything it remembered goes.
-- KEYS[1] gate hash readiness, epoch
-- KEYS[2+] emptied list every other key of the gate
-- ARGV[1] epoch int of this filling
-- ARGV[2] clock_offset_ms int moves the clock
-- Answers done, or superseded by a higher epoch.
local epoch = tonumber(ARGV[1])
if tonumber(redis.call('HGET', KEYS[1], 'epoch') or 0) > epoch then return 'superseded' end
redis.call('HSET', KEYS[1], 'ready', '0', 'epoch', text(epoch), 'holding', '0')
redis.call('HSET', KEYS[1], 'filling_at', text(clock(KEYS[1], ARGV[2])))
for i = 2, #KEYS do redis.call('UNLINK', KEYS[i]) end
return 'done'
