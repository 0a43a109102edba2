-- Follows PostgreSQL: these holds are being paid and have no deadline any more.
-- KEYS[1] meta hash readiness
-- KEYS[2] holds hash live reservations
-- KEYS[3] deadlines zset when a hold may be released
-- ARGV[1+] ids_and_untils list reservation_id, when its order expires, and so on; at most 2,000 pairs
-- Answers how many it knew, or not-ready.
if not is_ready(keys.meta, keys.holds, keys.deadlines) then return 'not-ready' end
local ids = {}
for i = 1, #ARGV, 2 do ids[#ids + 1] = ARGV[i] end
local known, written = {}, {}
for i, held in ipairs(redis.call('HMGET', keys.holds, unpack(ids))) do
  if held then
    local hold = cjson.decode(held)
    hold['until'] = tonumber(ARGV[2 * i])
    known[#known + 1] = ids[i]
    written[#written + 1] = ids[i]
    written[#written + 1] = cjson.encode(hold)
  end
end
if #known > 0 then
  redis.call('HSET', keys.holds, unpack(written))
  redis.call('ZREM', keys.deadlines, unpack(known))
end
return #known
