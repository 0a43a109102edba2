-- Revokes a pass unless its holder has a live hold; no hold can be made in between.
-- KEYS[1] meta hash readiness
-- KEYS[2] holds hash live reservations
-- KEYS[3] usage hash per holder
-- KEYS[4] revoked zset revoked passes
-- ARGV[1] jti text the pass
-- ARGV[2] holder text its holder
-- ARGV[3] expires_at_ms int when it expires by itself
-- ARGV[4] others_ms int the time by the slower of the other clocks
-- ARGV[5] clock_offset_ms int moves the clock
-- Answers {gone}, {live, until_ms} or {not-ready}.
local jti, holder, expires_at_ms, others_ms, clock_offset_ms = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), ARGV[5]
if not is_ready(keys.meta, keys.holds, keys.usage, keys.revoked) then return {'not-ready'} end
local until_ms
for _, id in ipairs(live_ids(holder)) do
  local hold = read_hold(id)
  if hold then until_ms = math.max(until_ms or 0, hold['until']) end
end
if until_ms then return {'live', text(until_ms)} end
local now = math.min((clock(keys.meta, clock_offset_ms)), others_ms)
redis.call('ZREMRANGEBYSCORE', keys.revoked, '-inf', text(now - 3600000))
redis.call('ZADD', keys.revoked, expires_at_ms, jti)
return {'gone'}
