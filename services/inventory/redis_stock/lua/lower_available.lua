-- PostgreSQL refused GA tickets that Redis granted: lowers what is available to what PostgreSQL has left. The rest counts as
-- blocked, which mostly it is: the push of that change sets the number of blocked places, so it may come later.
-- KEYS[1] meta hash readiness
-- KEYS[2] counts hash per section
-- KEYS[3] dirty set sections changed
-- ARGV[1] section_id text which GA section
-- ARGV[2] available_max int what PostgreSQL has left
-- Answers by how many it lowered, or not-ready.
local section, available_max = ARGV[1], tonumber(ARGV[2])
if not is_ready(keys.meta, keys.counts) then return 'not-ready' end
local over = tonumber(redis.call('HGET', keys.counts, section .. ':available') or 0) - available_max
if over <= 0 then return 0 end
count(section, '.', 'x', over)
return over
