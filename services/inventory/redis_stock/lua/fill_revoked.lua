-- Some dead passes, from the ledger.
-- KEYS[1] meta hash epoch
-- KEYS[2] revoked zset dead passes
-- ARGV[1] epoch int of this filling
-- ARGV[2+] passes list expires_at_ms, jti
-- Answers done, superseded, or lost: a part has gone since the filling began.
if redis.call('HGET', KEYS[1], 'epoch') ~= ARGV[1] then return 'superseded' end
if not is_whole(KEYS[1], KEYS[2]) then return 'lost' end
for i = 2, #ARGV, 2 do redis.call('ZADD', KEYS[2], ARGV[i], ARGV[i + 1]) end
return 'done'
