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
local keys = {meta = KEYS[1], counts = KEYS[2], holds = KEYS[3], deadlines = KEYS[4], usage = KEYS[5], dirty = KEYS[6],
              map = KEYS[7]}
local id, holder, selection = ARGV[1], ARGV[2], ARGV[3]
if not is_ready(keys.meta, keys.counts, keys.holds, keys.deadlines, keys.usage) then return 'not-ready' end
if redis.call('HSETNX', keys.usage, 'r:' .. id, '1') == 0 then return 'again' end
local hold = read_hold(keys, id)
if hold then -- its release has not reached Redis yet
  local runs, ga = parse(hold.selection)
  set_marks(keys, runs, ga, 'h', 's')
  drop_hold(keys, id, hold)
  return 'done'
end
local runs, ga, size = parse(selection)
for _, run in ipairs(runs) do
  for position = run[2], run[2] + run[3] - 1 do set_mark(keys, run[1], position, 's') end
end
for _, ticket in ipairs(ga) do count(keys, ticket[1], '.', 's', ticket[2]) end
add_tickets(keys, holder, size)
return 'done'
