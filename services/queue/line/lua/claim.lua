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
if #ARGV > 4 + 1024 then return redis.error_reply('too many places') end
local r = redis.call('HMGET', KEYS[1], 'ready', 'epoch', 'generation', 'last_ms', 'session_s')
if r[1] ~= '1' then return {'not-ready'} end
if r[2] ~= ARGV[1] then return {'stale-epoch'} end
if redis.call('EXISTS', unpack(KEYS)) < #KEYS then return {'not-ready'} end
local time = redis.call('TIME')
local now = math.max(time[1] * 1000 + math.floor(time[2] / 1000) + ARGV[3], tonumber(r[4]) or 0)

local ends = (math.floor(now / 1000) + tonumber(r[5])) * 1000
local answer, claims = {'ok', tonumber(r[3])}, 0
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
  local call = tonumber(redis.call('HGET', misses, place) or 0) + 1
  answer[#answer + 1], answer[#answer + 2], answer[#answer + 3] = outcome, call, at
end
if claims > 0 then redis.call('HINCRBY', KEYS[1], 'claims', claims) end
return answer
