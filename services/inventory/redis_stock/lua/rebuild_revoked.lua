-- Some revoked passes, from PostgreSQL.
-- KEYS[1] meta hash epoch
-- KEYS[2] revoked zset revoked passes
-- ARGV[1] epoch int of this rebuild
-- ARGV[2+] passes list expires_at_ms, jti
-- Answers done, superseded, or lost: a key has disappeared since the rebuild began.
if redis.call('HGET', KEYS[1], 'epoch') ~= ARGV[1] then return 'superseded' end
if not all_exist(KEYS[1], KEYS[2]) then return 'lost' end
for i = 2, #ARGV, 2 do redis.call('ZADD', KEYS[2], ARGV[i], ARGV[i + 1]) end
return 'done'
