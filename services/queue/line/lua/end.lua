-- Ends places that have ended in the database and frees their slots. Idempotent.
-- Answers 'ok', 'stale-epoch' or 'not-ready'.
-- KEYS[1] room hash the room
-- KEYS[2] called zset standing calls
-- KEYS[3] active zset sessions
-- KEYS[4] done bitmap places of this lane that ended
-- ARGV[1] epoch int the epoch of the places
-- ARGV[2] lane int their lane
-- ARGV[3+] join_seqs list places that have ended, at most 1024
limit_list(3, 1024)
local reason = check_room(ARGV[1], 'join_seq:' .. ARGV[2])
if reason then return reason end
for i = 3, #ARGV do
  local place = ARGV[2] .. ':' .. ARGV[i]
  redis.call('ZREM', KEYS[2], place)
  redis.call('ZREM', KEYS[3], place)
  if tonumber(ARGV[i]) <= number('join_seq:' .. ARGV[2]) then redis.call('SETBIT', KEYS[4], ARGV[i], 1) end
end
return 'ok'
