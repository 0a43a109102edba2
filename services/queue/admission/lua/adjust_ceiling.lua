-- Moves the ceiling on purchases in progress. While checkout is slow it falls, the faster the slower checkout is, but not
-- below what checkout completed in its best second lately. While it holds fans back and checkout is not slow it rises: by three
-- fifths a second up to half of what it was when checkout was last slow, and slowly from there (as TCP's window, RFC
-- 5681), or once checkout is half as slow. Any number of processes may run it: all of it is measured in time.
-- Answers {'ok', ceiling as a decimal}, or {'not-ready'|'stale-epoch'}.
-- KEYS[1] room hash the room
-- ARGV[1] epoch int the epoch the caller knows
-- ARGV[2] enforced int 1: ticks keep to the ceiling; 0: it is only computed
-- ARGV[3] floor float share of the rate that is called whatever checkout has to do
-- ARGV[4] at_checkout float purchases of this room in work at checkout
-- ARGV[5] done_per_s float how many of them checkout completes a second
-- ARGV[6] slowness float time that checkout takes for what it has in work on average, by the time from which it is slow
-- ARGV[7] slowness_now float the same for what it has in work now, before which nothing rises
-- ARGV[8] clock_offset_ms int added to Redis' clock; 0 outside tests
local START, LEAST, RISE, QUICK_RISE, FALL_MOST, STEP_MAX_MS, HELD_BACK_MS = 128, 32, 1.1, 1.6, 0.5, 5000, 2000
local RISE_MAX_S = 1  -- the loop rests while nothing is to be adjusted, and then the ceiling held nobody back
local FORGET, FORGET_SLOW = 0.98, 0.95  -- what is left of the best second each second
local reason = check_room(ARGV[1], 'ceiling', 'ceiling_ms', 'ceiling_safe', 'ceiling_falls', 'ceiling_best',
  'held_back_ms', 'max_active')
if reason then return {reason} end
local now, ceiling, slowness = clock(ARGV[8]), tonumber(room.ceiling) or START, tonumber(ARGV[6])
local since = math.min(STEP_MAX_MS, now - (tonumber(room.ceiling_ms) or now)) / 1000
local safe, falls = tonumber(room.ceiling_safe) or 1e9, room.ceiling_falls or '0'
local best = math.max(tonumber(ARGV[5]), number('ceiling_best') * (slowness > 1 and FORGET_SLOW or FORGET) ^ since)

if slowness > 1 then
  if falls == '0' then safe, falls = math.max(best, ceiling / 2), '1' end
  local fallen = ceiling * math.max(FALL_MOST, 1 / slowness) ^ since
  ceiling = math.max(LEAST, math.min(ceiling, math.max(best, fallen)))
else
  falls = '0'
  local slower = math.max(slowness, tonumber(ARGV[7]))
  if slower < 1 and now - number('held_back_ms') < HELD_BACK_MS then
    local for_s = math.min(since, RISE_MAX_S)
    local risen = ceiling * RISE ^ for_s
    if slower < 0.5 then risen = math.min(ceiling * QUICK_RISE ^ for_s, math.max(safe, risen)) end
    ceiling = math.max(ceiling, math.min(risen, number('max_active')))
  end
end
local text = string.format('%.3f', ceiling)
redis.call('HSET', KEYS[1], 'ceiling', text, 'ceiling_ms', string.format('%.0f', now), 'ceiling_on', ARGV[2],
  'ceiling_safe', string.format('%.3f', safe), 'ceiling_falls', falls, 'ceiling_best', string.format('%.3f', best),
  'floor', ARGV[3], 'at_checkout', ARGV[4])
return {'ok', text}
