-- How many tickets some holders have, held or bought, from PostgreSQL.
-- KEYS[1] meta hash epoch
-- KEYS[2] usage hash per holder
-- ARGV[1] epoch int of this rebuild
-- ARGV[2+] tickets list holder, tickets
-- Answers done, superseded, or lost: a key has disappeared since the rebuild began.
if redis.call('HGET', keys.meta, 'epoch') ~= ARGV[1] then return 'superseded' end
if not all_exist(keys.meta, keys.usage) then return 'lost' end
local fields = {}
for i = 2, #ARGV, 2 do
  fields[i - 1], fields[i] = 't:' .. ARGV[i], ARGV[i + 1]
end
if #fields > 0 then redis.call('HSET', keys.usage, unpack(fields)) end
return 'done'
