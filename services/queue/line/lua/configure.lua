-- Writes the room's configuration from the database; an older version changes nothing. The token bucket is settled at
-- the old rate first, so a new rate has no effect on time that has passed. A room that is opened or resumed starts with
-- an empty bucket and with all places taken as live. Answers 'ok', 'older', 'not-ready' or 'stale-epoch'.
-- KEYS[1] room hash the room
-- ARGV[1] epoch int the epoch the configuration belongs to
-- ARGV[2] config_version int version of the configuration
-- ARGV[3] clock_offset_ms int added to Redis' clock; 0 outside tests
-- ARGV[4+] fields list names and values
local room = KEYS[1]
local r = redis.call('HMGET', room, 'ready', 'epoch', 'config_version', 'last_ms', 'tokens', 'bucket_ms', 'rate_per_s',
  'shown', 'token_cap', 'state', 'liveness_window_ms', 'throttle_factor')
if r[1] ~= '1' then return 'not-ready' end
if r[2] ~= ARGV[1] then return 'stale-epoch' end
if tonumber(r[3] or 0) >= tonumber(ARGV[2]) then return 'older' end
local time = redis.call('TIME')
local now = math.max(time[1] * 1000 + math.floor(time[2] / 1000) + ARGV[3], tonumber(r[4]) or 0)

local tokens = tonumber(r[5]) or 0
local runs = {open = true, draining = true}
if runs[r[8]] then
  local since = math.max(0, now - (tonumber(r[6]) or now))
  local refilled = tokens + (tonumber(r[7]) or 0) * (tonumber(r[12]) or 1) * since / 1000
  tokens = math.max(tokens, math.min(tonumber(r[9]) or 1, refilled))
end
redis.call('HSET', room, 'config_version', ARGV[2], unpack(ARGV, 4))
local state, window_ms = unpack(redis.call('HMGET', room, 'state', 'liveness_window_ms'))
if window_ms ~= r[11] then  -- windows are renumbered; old bits stay until their slot is reused
  for _, name in ipairs(redis.call('HKEYS', room)) do
    if string.find(name, '^window:') then redis.call('HSET', room, name, math.floor(now / window_ms)) end
  end
end
if runs[state] and not runs[r[10]] then
  redis.call('HSET', room, 'assume_live_until_ms', now + 3 * window_ms)
  tokens = 0
end
redis.call('HSET', room, 'tokens', string.format('%.6f', tokens), 'bucket_ms', now)
return 'ok'
