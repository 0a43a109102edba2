-- Marks the stock as ready: it is what PostgreSQL has, and it is in this Redis process.
-- KEYS[1] meta hash readiness, epoch, redis_instance_id
-- KEYS[2+] parts list every key that must exist
-- ARGV[1] epoch int of this rebuild
-- ARGV[2] redis_instance_id text the Redis process that has the data
-- ARGV[3] stock_version int of the event when PostgreSQL was read
-- Answers done, superseded, or lost: a key has disappeared since the rebuild began.
if redis.call('HGET', keys.meta, 'epoch') ~= ARGV[1] then return 'superseded' end
if not all_exist(keys.meta, unpack(KEYS, 2)) then return 'lost' end
redis.call('HSET', keys.meta, 'ready', '1', 'redis_instance_id', ARGV[2], 'stock_version', ARGV[3])
return 'done'
