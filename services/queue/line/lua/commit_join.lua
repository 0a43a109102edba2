-- Sets the liveness bits of numbers that are committed in the database and takes their batch out of flight. Idempotent.
-- A number committed late may have been called or ended without a place before: that is undone unless a call stands.
-- Answers {'ok', call_now}, call_now is 1 when nobody waits ahead and a slot is free; or {'not-ready'|'stale-epoch'}.
-- KEYS[1] room hash the room
-- KEYS[2] called zset standing calls
-- KEYS[3] active zset sessions
-- KEYS[4] inflight zset batches being written to the database
-- KEYS[5] alive_0 bitmap heartbeats, window slot 0
-- KEYS[6] alive_1 bitmap heartbeats, window slot 1
-- KEYS[7] alive_2 bitmap heartbeats, window slot 2
-- KEYS[8] taken bitmap places called
-- KEYS[9] done bitmap places ended
-- ARGV[1] epoch int the epoch of the numbers
-- ARGV[2] lane int their lane
-- ARGV[3] member str the batch as allocate recorded it; empty for numbers that the database gave
-- ARGV[4] clock_offset_ms int added to Redis' clock; 0 outside tests
-- ARGV[5+] runs list first and last number of each run, at most 2048 values
local called, active, inflight, taken, done, lane = KEYS[2], KEYS[3], KEYS[4], KEYS[8], KEYS[9], ARGV[2]
limit_list(5, 2048)
local reason = check_room(ARGV[1], 'liveness_window_ms', 'window:' .. lane, 'join_seq:' .. lane, 'head_seq:' .. lane,
  'shown', 'tokens', 'bucket_ms', 'rate_per_s', 'max_active')
if reason then return {reason} end

local now = clock(ARGV[4])
local alive = present_slot(lane, now, {KEYS[5], KEYS[6], KEYS[7]})

local function set_bits(key, first, last)
  local from, to = math.ceil(first / 8), math.floor((last + 1) / 8)
  if from >= to then
    for n = first, last do redis.call('SETBIT', key, n, 1) end
    return
  end
  for n = first, from * 8 - 1 do redis.call('SETBIT', key, n, 1) end
  redis.call('SETRANGE', key, from, string.rep('\255', to - from))
  for n = to * 8, last do redis.call('SETBIT', key, n, 1) end
end

local function clear_bits(key, first, last, except)
  for n = first, math.min(last, redis.call('STRLEN', key) * 8 - 1) do
    if redis.call('GETBIT', key, n) == 1 and not (except and except(n)) then redis.call('SETBIT', key, n, 0) end
  end
end

local function has_slot(n)
  local place = lane .. ':' .. n
  return redis.call('ZSCORE', called, place) or redis.call('ZSCORE', active, place)
end

local lowest, tail = nil, number('join_seq:' .. lane)
for i = 5, #ARGV, 2 do
  local first, last = tonumber(ARGV[i]), tonumber(ARGV[i + 1])
  set_bits(alive, first, last)
  clear_bits(done, first, last)
  clear_bits(taken, first, last, has_slot)
  lowest, tail = math.min(lowest or first, first), math.max(tail, last)
end
if tail > number('join_seq:' .. lane) then redis.call('HSET', KEYS[1], 'join_seq:' .. lane, tail) end
if ARGV[3] ~= '' then redis.call('ZREM', inflight, ARGV[3]) end

local tokens = number('tokens') + number('rate_per_s') * (now - (tonumber(room.bucket_ms) or now)) / 1000
local free = size(called) + size(active) < number('max_active')
local next_up = lowest and lowest <= number('head_seq:' .. lane) + 1
return {'ok', (next_up and room.shown == 'open' and tokens >= 1 and free) and 1 or 0}
