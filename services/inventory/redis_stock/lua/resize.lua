-- Follows PostgreSQL: the capacity of a GA section as of `version`. Added and removed places are available ones.
-- KEYS[1] meta hash readiness, version of the stock
-- KEYS[2] counts hash per section
-- KEYS[3] dirty set sections changed
-- ARGV[1] version int of the event when PostgreSQL was read
-- ARGV[2] section_id text which GA section
-- ARGV[3] capacity int its places, taken ones included
-- Answers done, stale (Redis has a newer version: read PostgreSQL again) or not-ready.
local version, section, capacity = tonumber(ARGV[1]), ARGV[2], tonumber(ARGV[3])
if not is_ready(keys.meta, keys.counts) then return 'not-ready' end
if tonumber(redis.call('HGET', keys.meta, 'stock_version') or 0) > version then return 'stale' end
redis.call('HSET', keys.meta, 'stock_version', text(version))
local current = 0
for _, name in pairs(NAMES) do current = current + tonumber(redis.call('HGET', keys.counts, section .. ':' .. name) or 0) end
if capacity ~= current then
  redis.call('HINCRBY', keys.counts, section .. ':available', capacity - current)
  touch(section)
end
return 'done'
