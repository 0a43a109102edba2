-- Turns standing calls into sessions. Idempotent. A call past its deadline is left for the tick to end.
-- Answers {reason}, or {'ok', generation, outcome, call, until_ms, …} in the order of the request. An outcome is
-- admitted, missed, waiting or ended.
-- KEYS[1] room hash the room
-- KEYS[2] called zset standing calls
-- KEYS[3] active zset sessions
-- KEYS[4] misses hash how many calls each place missed
-- KEYS[5] done bitmap places of this lane that ended
-- ARGV[1] epoch int the epoch of the places
-- ARGV[2] lane int their lane
-- ARGV[3] clock_offset_ms int added to Redis' clock; 0 outside tests
-- ARGV[4] others_ms int the slower of the database's and this process's clock: a call ends by the slowest of all three
-- ARGV[5+] join_seqs list places that claim, at most 1024
local called, active, misses, done, lane = KEYS[2], KEYS[3], KEYS[4], KEYS[5], ARGV[2]
limit_list(5, 1024)
local reason = check_room(ARGV[1], 'session_s')
if reason then return {reason} end

local now = clock(ARGV[3])
local ends = (math.floor(now / 1000) + room.session_s) * 1000
local answer, claims = {'ok', number('generation')}, 0
for i = 5, #ARGV do
  local place = lane .. ':' .. ARGV[i]
  local outcome, at = 'waiting', 0
  local session, deadline = redis.call('ZSCORE', active, place), redis.call('ZSCORE', called, place)
  if session then
    outcome, at = 'admitted', tonumber(session)
  elseif deadline and tonumber(deadline) > math.min(now, tonumber(ARGV[4])) then
    redis.call('ZREM', called, place)
    redis.call('ZADD', active, ends, place)
    outcome, at, claims = 'admitted', ends, claims + 1
  elseif deadline then
    outcome = 'missed'
  elseif redis.call('GETBIT', done, ARGV[i]) == 1 then
    outcome = 'ended'
  end
  answer[#answer + 1], answer[#answer + 2], answer[#answer + 3] = outcome, call_number(misses, place), at
end
if claims > 0 then redis.call('HINCRBY', KEYS[1], 'claims', claims) end
return answer
