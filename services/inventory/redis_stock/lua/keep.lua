-- The ledger says this hold has become smaller: its other places are free again. A hold only ever shrinks, so a word that
-- comes late, after a smaller one, changes nothing.
-- KEYS[1] meta hash readiness
-- KEYS[2] counts hash per section
-- KEYS[3] holds hash live reservations
-- KEYS[4] deadlines zset when a hold may be released
-- KEYS[5] usage hash per holder
-- KEYS[6] dirty set sections changed
-- KEYS[7] map prefix of the sections' maps
-- ARGV[1] reservation_id text which hold
-- ARGV[2] basket text what it has now
-- Answers done, again (it is no larger), unknown or not-ready.
local keys = {meta = KEYS[1], counts = KEYS[2], holds = KEYS[3], deadlines = KEYS[4], usage = KEYS[5], dirty = KEYS[6],
              map = KEYS[7]}
local id, basket = ARGV[1], ARGV[2]
if not is_ready(keys.meta, keys.counts, keys.holds, keys.deadlines, keys.usage) then return 'not-ready' end
local hold = read_hold(keys, id)
if not hold then return 'unknown' end
local runs, ga, size = lines(hold.basket)
local kept_runs, kept_ga, kept = lines(basket)
if kept >= size then return 'again' end
move(keys, runs, ga, 'h', '.')
move(keys, kept_runs, kept_ga, '.', 'h')
add_tickets(keys, hold.holder, kept - size)
hold.basket = basket
write_hold(keys, id, hold)
return 'done'
