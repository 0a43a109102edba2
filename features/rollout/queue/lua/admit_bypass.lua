-- Calls fans outside the rolled-out share, who bypass the queue. Never above max_active, only while the room is open,
-- and no token is spent. A place called or ended before is left alone. Answers {reason}, or {'ok', the numbers called
-- …}.
-- KEYS[1] room hash the room
-- KEYS[2] called zset standing calls: lane:seq -> claim deadline (ms)
-- KEYS[3] active zset sessions
-- KEYS[4] misses hash how many calls each place missed
-- KEYS[5] unwritten zset number -> change not yet in the database
-- KEYS[6] taken bitmap places called
-- KEYS[7] done bitmap places ended
-- ARGV[1] epoch int the epoch of the places
-- ARGV[2] lane int their lane
-- ARGV[3] clock_offset_ms int added to Redis' clock; 0 outside tests
-- ARGV[4+] join_seqs list places to call, at most 1024
local keys, active, done = {called = KEYS[2], misses = KEYS[4], unwritten = KEYS[5], taken = KEYS[6]}, KEYS[3], KEYS[7]
local BACKLOG_MAX = 10000
limit_list(4, 1024)
local reason = check_room(ARGV[1], 'claim_window_s', 'shown', 'max_active', 'change_n', 'join_seq:' .. ARGV[2])
if reason then return {reason} end

local now = clock(ARGV[3])
local free, answer = number('max_active') - size(keys.called) - size(active), {'ok'}
if room.shown ~= 'open' or size(keys.unwritten) > BACKLOG_MAX then free = 0 end
for i = 4, #ARGV do
  local seq = tonumber(ARGV[i])
  local joined = seq >= 1 and seq <= number('join_seq:' .. ARGV[2])
  if free > 0 and joined and redis.call('GETBIT', keys.taken, seq) == 0 and redis.call('GETBIT', done, seq) == 0 then
    call_place(keys, ARGV[2], seq, now, now + room.claim_window_s * 1000)
    answer[#answer + 1], free = seq, free - 1
  end
end
redis.call('HSET', KEYS[1], 'last_ms', now, 'change_n', string.format('%.0f', number('change_n')))
return answer
