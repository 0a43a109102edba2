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
local inflight, lane, batch_id, count = KEYS[2], ARGV[2], ARGV[3], tonumber(ARGV[4])
local BATCHES_MAX = 512
local reason = check_room(ARGV[1], 'state', 'opens_ms', 'ends_ms', 'stock', 'max_line', 'lane_max:' .. lane,
  'join_seq:' .. lane, 'head_seq:' .. lane)
if reason then return {reason} end
local now, generation = clock(ARGV[5]), number('generation')

for _, member in ipairs(redis.call('ZRANGE', inflight, 0, BATCHES_MAX)) do
  local first, granted, id = string.match(member, '^(%d+):(%d+):(.*)$')
  if id == batch_id then return {'ok', tonumber(first), tonumber(granted), generation} end
end

local is_over = number('ends_ms') > 0 and now >= number('ends_ms')
if (room.state ~= 'open' and room.state ~= 'paused') or now < number('opens_ms') or is_over then return {'closed'} end
if room.stock == 'sold_out' then return {'sold-out'} end
if redis.call('ZCARD', inflight) > BATCHES_MAX then return {'busy'} end
local tail = number('join_seq:' .. lane)
for _, limit in ipairs({'max_line', 'lane_max:' .. lane}) do
  if number(limit) > 0 then count = math.min(count, number(limit) - (tail - number('head_seq:' .. lane))) end
end
if count < 1 then return {'line-full'} end

redis.call('HINCRBY', KEYS[1], 'join_seq:' .. lane, count)
redis.call('ZADD', inflight, now, string.format('%d:%d:%s', tail + 1, count, batch_id))
return {'ok', tail + 1, count, generation}
