-- Follows PostgreSQL: sold places were returned and are available or blocked; `excess` tickets were oversold and free no place.
-- KEYS[1] meta hash readiness, epoch
-- KEYS[2] counts hash per section
-- KEYS[3] holds hash live reservations
-- KEYS[4] deadlines zset when a hold may be released
-- KEYS[5] usage hash per holder, and what was returned
-- KEYS[6] dirty set sections changed
-- KEYS[7] map prefix of the sections' maps
-- ARGV[1] epoch int Redis' epoch when PostgreSQL decided
-- ARGV[2] reservation_id text which reservation
-- ARGV[3] holder text its holder
-- ARGV[4] quantity int of its tickets
-- ARGV[5] mark text what its places are now: . or x
-- ARGV[6] places text selection of them
-- ARGV[7+] excess list section_id, tickets without a place
-- Answers done, again, superseded (rebuilt since: it is in the rebuild, or reconciliation corrects it) or not-ready.
local epoch, id, holder, quantity, mark, places = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]
if not is_ready(keys.meta, keys.counts, keys.holds, keys.deadlines, keys.usage) then return 'not-ready' end
if redis.call('HGET', keys.meta, 'epoch') ~= epoch then return 'superseded' end
if redis.call('HSETNX', keys.usage, 'b:' .. id, '1') == 0 then return 'again' end
local hold = read_hold(id)
local from = hold and 'h' or 's' -- its sale has not reached Redis yet
if hold then drop_hold(id, hold) end
local runs, ga = parse(places)
set_marks(runs, ga, from, mark)
for i = 7, #ARGV, 2 do
  redis.call('HINCRBY', keys.counts, ARGV[i] .. ':' .. NAMES[from], '-' .. ARGV[i + 1])
  touch(ARGV[i])
end
add_tickets(holder, -tonumber(quantity))
return 'done'
