-- Follows PostgreSQL: this hold was reduced, its other places are available. A hold only ever shrinks, so a late call with a
-- larger selection changes nothing.
-- KEYS[1] meta hash readiness
-- KEYS[2] counts hash per section
-- KEYS[3] holds hash live reservations
-- KEYS[4] deadlines zset when a hold may be released
-- KEYS[5] usage hash per holder
-- KEYS[6] dirty set sections changed
-- KEYS[7] map prefix of the sections' maps
-- ARGV[1] reservation_id text which hold
-- ARGV[2] selection text what it has now
-- Answers done, again (it is no larger), unknown or not-ready.
local id, selection = ARGV[1], ARGV[2]
if not is_ready(keys.meta, keys.counts, keys.holds, keys.deadlines, keys.usage) then return 'not-ready' end
local hold = read_hold(id)
if not hold then return 'unknown' end
local runs, ga, size = parse(hold.selection)
local kept_runs, kept_ga, kept = parse(selection)
if kept >= size then return 'again' end
set_marks(runs, ga, 'h', '.')
set_marks(kept_runs, kept_ga, '.', 'h')
add_tickets(hold.holder, kept - size)
hold.selection = selection
write_hold(id, hold)
return 'done'
