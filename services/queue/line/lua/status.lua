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
limit_list(3, 1024)
local reason = check_room(ARGV[1], 'shown')
if reason then return {reason} end
local answer, last_ms = {'ok', room.shown or 'open'}, number('last_ms')
for i = 3, #ARGV do
  local place = lane .. ':' .. ARGV[i]
  local status, at = 'waiting', 0
  local deadline, session = redis.call('ZSCORE', KEYS[2], place), redis.call('ZSCORE', KEYS[3], place)
  if session then
    status, at = 'admitted', tonumber(session)
  elseif deadline then
    if tonumber(deadline) > last_ms then status, at = 'ready', tonumber(deadline) end
  elseif redis.call('GETBIT', KEYS[4], ARGV[i]) == 1 then
    status = 'ended'
  end
  answer[#answer + 1], answer[#answer + 2] = status, at
end
return answer
