-- Moves the share of the rate that is let through: down in steps during overload; afterwards it doubles each step up to
-- half of what it was when the overload began, and rises slowly from there (as TCP's slow start, RFC 5681).
-- Any number of processes may run it: a step down waits for the last move, and the recovery is measured in time.
-- Answers {'ok', share} with the share as a decimal, or {'not-ready'|'stale-epoch'}.
-- KEYS[1] room hash the room
-- ARGV[1] epoch int the epoch the caller knows
-- ARGV[2] overload int 1 while there is overload
-- ARGV[3] enforced int 1: the tick applies the share; 0: it is only computed
-- ARGV[4] floor float the share is never lowered below this
-- ARGV[5] down float what a step down leaves of the share
-- ARGV[6] step_ms int time between two steps down, and in which the share doubles
-- ARGV[7] recovery_ms int time in which the whole rate comes back
-- ARGV[8] clock_offset_ms int added to Redis' clock; 0 outside tests
local reason = check_room(ARGV[1], 'throttle_share', 'throttle_ms', 'throttle_factor', 'throttle_safe', 'throttle_falls')
if reason then return {reason} end
local now, share, moved = clock(ARGV[8]), tonumber(room.throttle_share) or 1, number('throttle_ms')
local safe, falls = number('throttle_safe'), room.throttle_falls or '0'

if ARGV[2] == '1' then
  if now - moved >= tonumber(ARGV[6]) then
    if falls == '0' then safe, falls = share / 2, '1' end
    share, moved = math.min(share, math.max(tonumber(ARGV[4]), share * ARGV[5])), now
  end
elseif share < 1 then
  local since, doubling = now - moved, tonumber(ARGV[6])
  if share < safe then
    local quick = math.min(since, doubling * math.log(safe / share) / math.log(2))
    share, since = share * 2 ^ (quick / doubling), since - quick
  end
  share, moved, falls = math.min(1, share + since / ARGV[7]), now, '0'
end
local text = string.format('%.4f', share)
local factor = ARGV[3] == '1' and text or '1'
if moved ~= number('throttle_ms') or factor ~= (room.throttle_factor or '1') then
  local moved_text = string.format('%.0f', moved)
  redis.call('HSET', KEYS[1], 'throttle_share', text, 'throttle_ms', moved_text, 'throttle_factor', factor,
    'throttle_safe', string.format('%.4f', safe), 'throttle_falls', falls)
end
return {'ok', text}
