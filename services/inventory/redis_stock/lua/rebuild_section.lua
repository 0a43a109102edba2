-- One section, from PostgreSQL.
-- KEYS[1] meta hash epoch
-- KEYS[2] counts hash per section
-- KEYS[3] dirty set sections changed
-- KEYS[4] map prefix of the sections' maps
-- ARGV[1] epoch int of this rebuild
-- ARGV[2] section_id text which
-- ARGV[3] marks text its map; empty for GA
-- ARGV[4] available int places
-- ARGV[5] held int places
-- ARGV[6] sold int places
-- ARGV[7] blocked int places
-- Answers done, superseded, or lost: a key has disappeared since the rebuild began.
if redis.call('HGET', keys.meta, 'epoch') ~= ARGV[1] then return 'superseded' end
if not all_exist(keys.meta, keys.counts) then return 'lost' end
local section, marks = ARGV[2], ARGV[3]
if marks ~= '' then redis.call('SET', keys.map .. section, marks) end
redis.call('HSET', keys.counts, section .. ':available', ARGV[4], section .. ':held', ARGV[5], section .. ':sold', ARGV[6],
           section .. ':blocked', ARGV[7])
redis.call('SADD', keys.dirty, section)
return 'done'
