-- Keeps batches that are still being written in flight, so that the tick goes on waiting for them. Answers how many it
-- found.
-- KEYS[1] room hash the room
-- KEYS[2] inflight zset batches being written to the database
-- ARGV[1] clock_offset_ms int added to Redis' clock; 0 outside tests
-- ARGV[2+] members list batches as allocate recorded them
read_room()
local now, renewed = clock(ARGV[1]), 0
for i = 2, #ARGV do
  renewed = renewed + redis.call('ZADD', KEYS[2], 'XX', 'CH', now, ARGV[i])
end
return renewed
