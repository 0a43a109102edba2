-- Writes the room's configuration from the database; an older version changes nothing. The token bucket is settled at
-- the old rate first, so a new rate has no effect on time that has passed. A room that is opened or resumed starts with
-- an empty bucket and with all places taken as live. Answers 'ok', 'older', 'not-ready' or 'stale-epoch'.
-- KEYS[1] room hash the room
-- ARGV[1] epoch int the epoch the configuration belongs to
-- ARGV[2] config_version int version of the configuration
-- ARGV[3] clock_offset_ms int added to Redis' clock; 0 outside tests
-- ARGV[4+] fields list names and values
local reason = check_room(ARGV[1], 'config_version', 'tokens', 'bucket_ms', 'rate_per_s', 'shown', 'token_cap', 'state',
  'liveness_window_ms')
if reason then return reason end
if number('config_version') >= tonumber(ARGV[2]) then return 'older' end

local now, tokens = clock(ARGV[3]), number('tokens')
local runs = {open = true, draining = true}
if runs[room.shown] then
  local since = math.max(0, now - (tonumber(room.bucket_ms) or now))
  local refilled = tokens + number('rate_per_s') * since / 1000
  tokens = math.max(tokens, math.min(tonumber(room.token_cap) or 1, refilled))
end
redis.call('HSET', KEYS[1], 'config_version', ARGV[2], unpack(ARGV, 4))
local state, window_ms = unpack(redis.call('HMGET', KEYS[1], 'state', 'liveness_window_ms'))
if window_ms ~= room.liveness_window_ms then  -- windows are renumbered; old bits stay until their slot is reused
  for _, name in ipairs(redis.call('HKEYS', KEYS[1])) do
    if string.find(name, '^window:') then redis.call('HSET', KEYS[1], name, math.floor(now / window_ms)) end
  end
end
if runs[state] and not runs[room.state] then
  redis.call('HSET', KEYS[1], 'assume_live_until_ms', now + 3 * window_ms)
  tokens = 0
end
redis.call('HSET', KEYS[1], 'tokens', string.format('%.6f', tokens), 'bucket_ms', now)
return 'ok'
