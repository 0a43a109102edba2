-- The public stock of an event, if something changed or with `force`.
-- KEYS[1] meta hash readiness, epoch, version, clock
-- KEYS[2] counts hash per section
-- KEYS[3] dirty set sections changed
-- ARGV[1] clock_offset_ms int moves the clock
-- ARGV[2] others_ms int the time by the slower of the other clocks; far from Redis' own the stock is not ready
-- ARGV[3] force int 1 to answer although nothing changed
-- ARGV[4] peek int 1 to leave the changes for the next frame
-- Answers {} if unchanged, else {ready epoch version now_ms holders_holding holds_begun holds_ended field value…}, the
-- marker among them.
local clock_offset_ms, others_ms, force, peek = ARGV[1], tonumber(ARGV[2]), ARGV[3] == '1', ARGV[4] == '1'
if not force and redis.call('EXISTS', keys.dirty) == 0 then return {} end
local now, redis_ms = clock(keys.meta, clock_offset_ms)
local version = tonumber(redis.call('HGET', keys.meta, 'version') or 0)
if not peek then
  version = math.max(version + 1, now)
  redis.call('HSET', keys.meta, 'version', text(version))
  redis.call('DEL', keys.dirty)
end
local found = redis.call('HMGET', keys.meta, 'ready', 'epoch', 'holding', 'begun', 'ended')
local ready = found[1] == '1' and all_exist(keys.meta, keys.counts) and math.abs(redis_ms - others_ms) <= APART_MS
return {ready and '1' or '0', found[2] or '0', text(math.max(version, 1)), text(now), found[3] or '0', found[4] or '0',
        found[5] or '0', unpack(redis.call('HGETALL', keys.counts))}
