-- Says that batches are still being written, so that the tick keeps waiting for them. Answers how many it found.
-- KEYS[1] room hash the room
-- KEYS[2] inflight zset batches on their way to the ledger
-- ARGV[1] clock_offset_ms int moves the engine's clock; 0 outside tests
-- ARGV[2+] members list batches as allocate noted them
local time = redis.call('TIME')
local last = tonumber(redis.call('HGET', KEYS[1], 'last_ms') or 0)
local now = math.max(time[1] * 1000 + math.floor(time[2] / 1000) + ARGV[1], last)
local renewed = 0
for i = 2, #ARGV do
  renewed = renewed + redis.call('ZADD', KEYS[2], 'XX', 'CH', now, ARGV[i])
end
return renewed
