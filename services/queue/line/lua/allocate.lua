-- Allocates a range of queue numbers to a batch of joins and records the batch as in flight, so that the tick does not
-- scan past it. Idempotent by batch id.
-- Answers {'ok', first, granted, generation}, or {reason}: not-ready, stale-epoch, closed, sold-out, line-full or busy.
-- KEYS[1] room hash the room
-- KEYS[2] inflight zset batches being written to the database: first:count:batch_id -> time (ms)
-- ARGV[1] epoch int the epoch the caller knows
-- ARGV[2] lane int the lane whose counter is raised
-- ARGV[3] batch_id str unique per batch, the same in a retry
-- ARGV[4] count int how many numbers are wanted
-- ARGV[5] clock_offset_ms int added to Redis' clock; 0 outside tests
local room, inflight = KEYS[1], KEYS[2]
local lane, batch_id, count = ARGV[2], ARGV[3], tonumber(ARGV[4])
local BATCHES_MAX = 512

local r = redis.call('HMGET', room, 'ready', 'epoch', 'generation', 'last_ms', 'state', 'opens_ms', 'ends_ms', 'stock',
  'max_line', 'join_seq:' .. lane, 'head_seq:' .. lane, 'lane_max:' .. lane)
if r[1] ~= '1' then return {'not-ready'} end
if r[2] ~= ARGV[1] then return {'stale-epoch'} end
if redis.call('EXISTS', unpack(KEYS)) < #KEYS then return {'not-ready'} end
local time = redis.call('TIME')
local now = math.max(time[1] * 1000 + math.floor(time[2] / 1000) + ARGV[5], tonumber(r[4]) or 0)

for _, member in ipairs(redis.call('ZRANGE', inflight, 0, BATCHES_MAX)) do
  local first, granted, id = string.match(member, '^(%d+):(%d+):(.*)$')
  if id == batch_id then return {'ok', tonumber(first), tonumber(granted), tonumber(r[3])} end
end

local opens, ends = tonumber(r[6]) or 0, tonumber(r[7]) or 0
if (r[5] ~= 'open' and r[5] ~= 'paused') or now < opens or (ends > 0 and now >= ends) then return {'closed'} end
if r[8] == 'sold_out' then return {'sold-out'} end
if redis.call('ZCARD', inflight) > BATCHES_MAX then return {'busy'} end
local tail, head, max_line = tonumber(r[10]) or 0, tonumber(r[11]) or 0, tonumber(r[9]) or 0
local lane_max = tonumber(r[12]) or 0
if max_line > 0 then count = math.min(count, max_line - (tail - head)) end
if lane_max > 0 then count = math.min(count, lane_max - (tail - head)) end
if count < 1 then return {'line-full'} end

redis.call('HINCRBY', room, 'join_seq:' .. lane, count)
redis.call('ZADD', inflight, now, string.format('%d:%d:%s', tail + 1, count, batch_id))
return {'ok', tail + 1, count, tonumber(r[3])}
