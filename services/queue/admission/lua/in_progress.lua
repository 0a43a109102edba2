-- The overload guard's part of tick.lua: purchases in progress, and how many calls their ceiling leaves. In progress are
-- fans who were called or let in a moment ago, and what checkout has in work. A share of the rate, the floor, is called in
-- any case, from a bucket of its own.
local RECENT_MS, HELD_BACK_MS, FLOOR_SAVED_MS = 1000, 2000, 400

-- How many of a sorted set, whose members end so long after they began, began a moment ago. Sessions end on a whole second.
local function begun(key, now, length_ms, within_ms)
  local latest = now + length_ms
  return redis.call('ZCOUNT', key, string.format('(%.0f', latest - within_ms), string.format('%.0f', latest))
end

local function count_in_progress(now, called, active)
  return number('at_checkout') + begun(called, now, number('claim_window_s') * 1000, RECENT_MS)
    + begun(active, now, number('session_s') * 1000, RECENT_MS + 1000)
end

-- What the floor may call, `since` milliseconds after the last tick.
local function refill_floor(rate, since)
  local floor_rate = rate * number('floor')
  return math.min(math.max(1, floor_rate * FLOOR_SAVED_MS / 1000), number('floor_tokens') + floor_rate * since / 1000)
end

-- How many of these tokens may be used now.
local function under_ceiling(tokens, floor_tokens, in_progress)
  if room.ceiling_on ~= '1' then return tokens end
  return math.min(tokens, math.max(number('ceiling') - in_progress, floor_tokens))
end

-- Whether the ceiling holds fans back, or did a moment ago: `lanes` have fans above their head for whom there is a token.
local function holds_back(now, lanes, set, calls, allowed, tokens)
  local waiting = false
  for _, lane in ipairs(lanes) do waiting = waiting or lane.head < lane.limit end
  if waiting and allowed < math.floor(tokens) and calls == allowed then set.held_back_ms = now end
  return now - (set.held_back_ms or number('held_back_ms')) < HELD_BACK_MS
end

