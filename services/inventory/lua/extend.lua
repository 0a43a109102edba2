-- The ledger says these holds last until then: after its commit, after an extension, after a look at a due hold.
-- KEYS[1] gate hash readiness
-- KEYS[2] holds hash live reservations
-- KEYS[3] deadlines zset when a hold may be released
-- ARGV[1] grace_ms int past the shown countdown
-- ARGV[2+] ids_and_untils list reservation_id, until_ms, and so on
-- Answers how many it knew, or not-ready.
local keys = {gate = KEYS[1], holds = KEYS[2], deadlines = KEYS[3]}
local grace_ms = tonumber(ARGV[1])
if not is_ready(keys.gate) then return 'not-ready' end
local known = 0
for i = 2, #ARGV, 2 do
  local id, until_ms = ARGV[i], tonumber(ARGV[i + 1])
  local hold = read_hold(keys, id)
  if hold then
    known = known + 1
    if hold['until'] ~= until_ms then
      hold['until'] = until_ms
      write_hold(keys, id, hold)
    end
    redis.call('ZADD', keys.deadlines, text(until_ms + grace_ms), id)
  end
end
return known
