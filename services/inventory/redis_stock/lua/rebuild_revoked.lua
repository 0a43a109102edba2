-- Some revoked passes, from PostgreSQL.
-- KEYS[1] meta hash epoch
-- KEYS[2] revoked zset revoked passes
-- ARGV[1] epoch int of this rebuild
-- ARGV[2+] passes list expires_at_ms, jti
-- Answers done, superseded, or lost: a key has disappeared since the rebuild began.
if redis.call('HGET', keys.meta, 'epoch') ~= ARGV[1] then return 'superseded' end
if not all_exist(keys.meta, keys.revoked) then return 'lost' end
for i = 2, #ARGV, 2 do redis.call('ZADD', keys.revoked, ARGV[i], ARGV[i + 1]) end
return 'done'
