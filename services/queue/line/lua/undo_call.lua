-- Undoes calls of numbers that have no live place in the database: slot and token are returned. Idempotent.
-- A number with a liveness bit has been committed meanwhile: its call is undone and it may be called as a returner.
-- Answers 'ok', 'not-ready' or 'stale-epoch'.
-- KEYS[1] room hash the room
-- KEYS[2] called zset standing calls
-- KEYS[3] alive_0 bitmap heartbeats, window slot 0
-- KEYS[4] alive_1 bitmap heartbeats, window slot 1
-- KEYS[5] alive_2 bitmap heartbeats, window slot 2
-- KEYS[6] taken bitmap places called
-- KEYS[7] done bitmap places ended
-- ARGV[1] epoch int the epoch of the numbers
-- ARGV[2] generation int number of the rebuild that called them
-- ARGV[3] lane int their lane
-- ARGV[4+] join_seqs list numbers without a place, at most 1024
limit_list(4, 1024)
read_room()
local reason = room.generation ~= ARGV[2] and 'not-ready' or refusal(ARGV[1], KEYS)
if reason then return reason end
local returned = 0
for i = 4, #ARGV do
  local n = ARGV[i]
  returned = returned + redis.call('ZREM', KEYS[2], ARGV[3] .. ':' .. n)
  local committed = 0
  for slot = 3, 5 do committed = committed + redis.call('GETBIT', KEYS[slot], n) end
  if committed == 0 then
    redis.call('SETBIT', KEYS[7], n, 1)
  elseif redis.call('GETBIT', KEYS[7], n) == 0 then
    redis.call('SETBIT', KEYS[6], n, 0)
  end
end
if returned > 0 then redis.call('HINCRBYFLOAT', KEYS[1], 'tokens', returned) end
return 'ok'
