-- Allows the next tick to call some places beyond the rate. What that tick cannot call lapses, so nobody is called
-- later by surprise. Answers {'ok', manually_admitted}, the total so far; or {'not-ready'|'stale-epoch'}.
-- KEYS[1] room hash the room
-- ARGV[1] epoch int the epoch the caller knows
-- ARGV[2] count int how many
local reason = check_room(ARGV[1], 'manually_admitted')
if reason then return {reason} end
redis.call('HSET', KEYS[1], 'admit_now', ARGV[2])
return {'ok', number('manually_admitted')}
