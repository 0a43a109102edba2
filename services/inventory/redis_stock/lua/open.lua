-- Opens the gate: it holds what the ledger said, filled by this process of the engine.
-- KEYS[1] meta hash readiness, epoch, redis_instance_id
-- KEYS[2+] parts list everything that must be there
-- ARGV[1] epoch int of this filling
-- ARGV[2] redis_instance_id text which process holds the data
-- ARGV[3] stock_version int of the event when the ledger was read
-- Answers done, superseded, or lost: a part has gone since the filling began.
if redis.call('HGET', KEYS[1], 'epoch') ~= ARGV[1] then return 'superseded' end
if not is_whole(KEYS[1], unpack(KEYS, 2)) then return 'lost' end
redis.call('HSET', KEYS[1], 'ready', '1', 'redis_instance_id', ARGV[2], 'stock_version', ARGV[3])
return 'done'
