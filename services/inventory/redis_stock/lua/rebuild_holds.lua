-- Some live reservations, from PostgreSQL.
-- KEYS[1] meta hash epoch
-- KEYS[2] holds hash live reservations
-- KEYS[3] deadlines zset when a hold may be released
-- KEYS[4] usage hash per holder
-- ARGV[1] epoch int of this rebuild
-- ARGV[2+] listed list reservation_id, holder, stock hash, body hash, selection, until_ms, release_at_ms or 0 (being paid)
-- Answers done, superseded, or lost: a key has disappeared since the rebuild began.
if redis.call('HGET', keys.meta, 'epoch') ~= ARGV[1] then return 'superseded' end
if not all_exist(keys.meta, keys.holds, keys.deadlines, keys.usage) then return 'lost' end
for i = 2, #ARGV, 7 do
  local id, holder = ARGV[i], ARGV[i + 1]
  if redis.call('HEXISTS', keys.holds, id) == 0 then
    write_hold(id, {holder = holder, stock = ARGV[i + 2], body = ARGV[i + 3], selection = ARGV[i + 4],
                          ['until'] = tonumber(ARGV[i + 5])})
    add_live(holder, id)
    if ARGV[i + 6] ~= '0' then redis.call('ZADD', keys.deadlines, ARGV[i + 6], id) end
  end
end
return 'done'
