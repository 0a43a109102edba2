-- Marks that keep empty keys of a line in existence; placed in front of the scripts that create keys. Redis deletes a
-- key that becomes empty, so each holds a mark that no rule matches: a member with an infinite score, a field that
-- names no place, bit 0 of a bitmap. A missing key has therefore been lost, and every script refuses to go on without
-- it.
local MARK, MARKED = 'mark', '\128'

-- Creates the keys of a lane: `keys` from index `k` on are inflight, alive:0, alive:1, alive:2, taken, done of a lane.
local function mark_lane(keys, k)
  redis.call('ZADD', keys[k], '+inf', MARK)
  for i = k + 1, k + 5 do redis.call('SETBIT', keys[i], 0, 1) end
end

