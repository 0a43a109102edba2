-- Follows PostgreSQL: an ended reservation got its places again and bought them. A seat that Redis granted to another holder
-- meanwhile is taken from them, because PostgreSQL will refuse that hold.
-- KEYS[1] meta hash readiness
-- KEYS[2] counts hash per section
-- KEYS[3] holds hash live reservations
-- KEYS[4] deadlines zset when a hold may be released
-- KEYS[5] usage hash per holder, and what was reacquired
-- KEYS[6] dirty set sections changed
-- KEYS[7] map prefix of the sections' maps
-- ARGV[1] reservation_id text which reservation
-- ARGV[2] holder text its holder
-- ARGV[3] selection text its places
-- Answers done, again or not-ready.
local id, holder, selection = ARGV[1], ARGV[2], ARGV[3]
if not is_ready(keys.meta, keys.counts, keys.holds, keys.deadlines, keys.usage) then return 'not-ready' end
if redis.call('HSETNX', keys.usage, 'r:' .. id, '1') == 0 then return 'again' end
local hold = read_hold(id)
if hold then -- its release has not reached Redis yet
  local runs, ga = parse(hold.selection)
  set_marks(runs, ga, 'h', 's')
  drop_hold(id, hold)
  return 'done'
end
local runs, ga, size = parse(selection)
for _, run in ipairs(runs) do
  for position = run[2], run[2] + run[3] - 1 do set_mark(run[1], position, 's') end
end
for _, ticket in ipairs(ga) do count(ticket[1], '.', 's', ticket[2]) end
add_tickets(holder, size)
return 'done'
