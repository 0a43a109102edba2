-- Returns the status of places. Answers {reason}, or {'ok', shown, status, until_ms, status, until_ms, …} in the order
-- of the request. A status is ready (until the claim deadline), admitted (until the session ends), ended (the database
-- knows why) or waiting.
-- KEYS[1] room hash the room
-- KEYS[2] called zset standing calls
-- KEYS[3] active zset sessions
-- KEYS[4] done bitmap places of this lane that ended
-- ARGV[1] epoch int the epoch of the places
-- ARGV[2] lane int their lane
-- ARGV[3+] join_seqs list the places, at most 1024
local lane = ARGV[2]
if #ARGV > 2 + 1024 then return redis.error_reply('too many places') end
local r = redis.call('HMGET', KEYS[1], 'ready', 'epoch', 'shown', 'last_ms')
if r[1] ~= '1' then return {'not-ready'} end
if r[2] ~= ARGV[1] then return {'stale-epoch'} end
if redis.call('EXISTS', unpack(KEYS)) < #KEYS then return {'not-ready'} end
local answer = {'ok', r[3] or 'open'}
for i = 3, #ARGV do
  local place = lane .. ':' .. ARGV[i]
  local status, at = 'waiting', 0
  local deadline, session = redis.call('ZSCORE', KEYS[2], place), redis.call('ZSCORE', KEYS[3], place)
  if session then
    status, at = 'admitted', tonumber(session)
  elseif deadline then
    if tonumber(deadline) > tonumber(r[4] or 0) then status, at = 'ready', tonumber(deadline) end
  elseif redis.call('GETBIT', KEYS[4], ARGV[i]) == 1 then
    status = 'ended'
  end
  answer[#answer + 1], answer[#answer + 2] = status, at
end
return answer
