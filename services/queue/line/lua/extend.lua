-- Extends sessions whose holder has a live reservation. Answers how many moved, or 'stale-epoch'.
-- KEYS[1] room hash the room
-- KEYS[2] active zset sessions
-- ARGV[1] epoch int the epoch of the places
-- ARGV[2+] pairs list lane:join_seq and the new end (ms), at most 1024 values
limit_list(2, 1024)
read_room()
if room.epoch ~= ARGV[1] then return 'stale-epoch' end
local moved = 0
for i = 2, #ARGV, 2 do
  moved = moved + redis.call('ZADD', KEYS[2], 'XX', 'CH', ARGV[i + 1], ARGV[i])
end
return moved
