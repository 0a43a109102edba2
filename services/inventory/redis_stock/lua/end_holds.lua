-- Follows PostgreSQL: these holds have ended. Their places are available, or sold if they were bought.
-- KEYS[1] meta hash readiness
-- KEYS[2] counts hash per section
-- KEYS[3] holds hash live reservations
-- KEYS[4] deadlines zset when a hold may be released
-- KEYS[5] usage hash per holder
-- KEYS[6] dirty set sections changed
-- KEYS[7] map prefix of the sections' maps
-- ARGV[1] mark text what their places are now: . or s
-- ARGV[2+] ids list which holds; at most 1,000
-- Answers how many it knew (of those ended before, none), or not-ready.
local mark = ARGV[1]
if not is_ready(keys.meta, keys.counts, keys.holds, keys.deadlines, keys.usage) then return 'not-ready' end
local ids = {unpack(ARGV, 2)}
local ended, known = 0, 0
for i, found in ipairs(redis.call('HMGET', keys.holds, unpack(ids))) do
  -- an id that is listed twice ends once
  if found and redis.call('HDEL', keys.holds, ids[i]) == 1 then
    local hold = cjson.decode(found)
    local runs, ga, size = parse(hold.selection)
    set_marks(runs, ga, 'h', mark)
    known = known + 1
    local is_last = drop_live(hold.holder, ids[i])
    if mark == '.' then
      add_tickets(hold.holder, -size)
      if is_last then ended = ended + 1 end
    end
  end
end
redis.call('ZREM', keys.deadlines, unpack(ids))
if ended > 0 then redis.call('HINCRBY', keys.meta, 'ended', ended) end
return known
