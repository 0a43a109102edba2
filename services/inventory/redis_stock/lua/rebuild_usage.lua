-- How many tickets some holders have, held or bought, from PostgreSQL.
-- KEYS[1] meta hash epoch
-- KEYS[2] usage hash per holder
-- ARGV[1] epoch int of this rebuild
-- ARGV[2+] tickets list holder, tickets
-- Answers done, superseded, or lost: a key has disappeared since the rebuild began.
if redis.call('HGET', KEYS[1], 'epoch') ~= ARGV[1] then return 'superseded' end
if not all_exist(KEYS[1], KEYS[2]) then return 'lost' end
local fields = {}
for i = 2, #ARGV, 2 do
  fields[i - 1], fields[i] = 't:' .. ARGV[i], ARGV[i + 1]
end
if #fields > 0 then redis.call('HSET', KEYS[2], unpack(fields)) end
return 'done'
