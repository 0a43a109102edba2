-- Raises a lane's counter to the highest number in the database. If it moved, there are committed numbers without a
-- liveness bit: all places are taken as live for three windows. Answers 1 if it moved, 0 if not, or 'not-ready'.
-- KEYS[1] room hash the room
-- ARGV[1] epoch int the epoch of the number
-- ARGV[2] lane int the lane
-- ARGV[3] join_seq int the highest number in the database
-- ARGV[4] clock_offset_ms int added to Redis' clock; 0 outside tests
local r = redis.call('HMGET', KEYS[1], 'ready', 'epoch', 'last_ms', 'liveness_window_ms', 'join_seq:' .. ARGV[2])
if r[1] ~= '1' or r[2] ~= ARGV[1] or not r[5] then return 'not-ready' end
if tonumber(ARGV[3]) <= tonumber(r[5] or 0) then return 0 end
local time = redis.call('TIME')
local now = math.max(time[1] * 1000 + math.floor(time[2] / 1000) + ARGV[4], tonumber(r[3]) or 0)
redis.call('HSET', KEYS[1], 'join_seq:' .. ARGV[2], ARGV[3], 'assume_live_until_ms', now + 3 * r[4])
return 1
