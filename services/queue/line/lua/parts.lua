-- Marks of the parts of a line's state; it stands in front of scripts that make them. Redis drops whatever is empty, so
-- each part holds a mark that no rule ever matches: a member with an endless score, a field of no place, bit 0 of a
-- bitmap. A part without a key has therefore been lost, and every script refuses to go on without it.
local MARK, MARKED = 'mark', '\128'

-- `keys` from `k` on: inflight, seen:0, seen:1, seen:2, taken, done of a lane.
local function mark_lane(keys, k)
  redis.call('ZADD', keys[k], '+inf', MARK)
  for i = k + 1, k + 5 do redis.call('SETBIT', keys[i], 0, 1) end
end

