-- Raises a lane's counter to the highest number in the database. If it moved, there are committed numbers without a
-- liveness bit: all places are taken as live for three windows. Answers 1 if it moved, 0 if not, or 'not-ready'.
-- KEYS[1] room hash the room
-- ARGV[1] epoch int the epoch of the number
-- ARGV[2] lane int the lane
-- ARGV[3] join_seq int the highest number in the database
-- ARGV[4] clock_offset_ms int added to Redis' clock; 0 outside tests
local counter = 'join_seq:' .. ARGV[2]
if check_room(ARGV[1], 'liveness_window_ms', counter) or not room[counter] then return 'not-ready' end
if tonumber(ARGV[3]) <= number(counter) then return 0 end
redis.call('HSET', KEYS[1], counter, ARGV[3], 'assume_live_until_ms', clock(ARGV[4]) + 3 * room.liveness_window_ms)
return 1
