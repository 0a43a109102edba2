-- Follows PostgreSQL: these holds have these deadlines, after an extension or when a due hold turned out to be live.
-- KEYS[1] meta hash readiness
-- KEYS[2] holds hash live reservations
-- KEYS[3] deadlines zset when a hold may be released
-- ARGV[1] grace_ms int after the deadline that the fan sees
-- ARGV[2+] ids_and_untils list reservation_id, until_ms, and so on; at most 2,000 pairs
-- Answers how many it knew, or not-ready.
local grace_ms = tonumber(ARGV[1])
if not is_ready(keys.meta, keys.holds, keys.deadlines) then return 'not-ready' end
local ids, deadlines = {}, {}
for i = 2, #ARGV, 2 do ids[#ids + 1] = ARGV[i] end
local found = redis.call('HMGET', keys.holds, unpack(ids))
for i, id in ipairs(ids) do
  local until_ms = tonumber(ARGV[2 * i + 1])
  if found[i] then
    local hold = cjson.decode(found[i])
    if hold['until'] ~= until_ms then
      hold['until'] = until_ms
      write_hold(id, hold)
    end
    deadlines[#deadlines + 1] = text(until_ms + grace_ms)
    deadlines[#deadlines + 1] = id
  end
end
if #deadlines > 0 then redis.call('ZADD', keys.deadlines, unpack(deadlines)) end
return #deadlines / 2
