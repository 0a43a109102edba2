-- Follows PostgreSQL: this hold has ended. Its places are available, or sold if it was bought.
-- KEYS[1] meta hash readiness
-- KEYS[2] counts hash per section
-- KEYS[3] holds hash live reservations
-- KEYS[4] deadlines zset when a hold may be released
-- KEYS[5] usage hash per holder
-- KEYS[6] dirty set sections changed
-- KEYS[7] map prefix of the sections' maps
-- ARGV[1] reservation_id text which hold
-- ARGV[2] mark text what its places are now: . or s
-- Answers done, unknown (also when done before) or not-ready.
local id, mark = ARGV[1], ARGV[2]
if not is_ready(keys.meta, keys.counts, keys.holds, keys.deadlines, keys.usage) then return 'not-ready' end
local hold = read_hold(id)
if not hold then
  redis.call('ZREM', keys.deadlines, id)
  return 'unknown'
end
local runs, ga, size = parse(hold.selection)
set_marks(runs, ga, 'h', mark)
drop_hold(id, hold)
if mark == '.' then
  add_tickets(hold.holder, -size)
  if #live_ids(hold.holder) == 0 then redis.call('HINCRBY', keys.meta, 'ended', 1) end
end
return 'done'
