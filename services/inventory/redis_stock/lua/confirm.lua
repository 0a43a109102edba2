-- Follows PostgreSQL: this hold was bought, its places are sold.
-- KEYS[1] meta hash readiness
-- KEYS[2] counts hash per section
-- KEYS[3] holds hash live reservations
-- KEYS[4] deadlines zset when a hold may be released
-- KEYS[5] usage hash per holder
-- KEYS[6] dirty set sections changed
-- KEYS[7] map prefix of the sections' maps
-- ARGV[1] reservation_id text which hold
-- Answers done, unknown (also when done before) or not-ready.
local keys = {meta = KEYS[1], counts = KEYS[2], holds = KEYS[3], deadlines = KEYS[4], usage = KEYS[5], dirty = KEYS[6],
              map = KEYS[7]}
local id = ARGV[1]
if not is_ready(keys.meta, keys.counts, keys.holds, keys.deadlines, keys.usage) then return 'not-ready' end
local hold = read_hold(keys, id)
if not hold then return 'unknown' end
local runs, ga = parse(hold.selection)
set_marks(keys, runs, ga, 'h', 's')
drop_hold(keys, id, hold)
return 'done'
