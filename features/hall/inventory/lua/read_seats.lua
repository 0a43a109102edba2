-- The states of all seats, under a version that rises whenever one of them has changed, whoever reads.
-- KEYS[1] meta hash readiness, epoch, clock
-- KEYS[2] seats hash the last reading: its epoch, version, marks and reserved seats
-- KEYS[3] watched text set while a stream shows seats
-- KEYS[4] map prefix of the sections' maps
-- ARGV[1] clock_offset_ms int moves the clock
-- ARGV[2] epoch int of the caller's sections
-- ARGV[3] known int the version that the caller has
-- ARGV[4] reserved text names the seats that not everybody may buy, as the caller knows them
-- ARGV[5+] sections list those with a map, in map order
-- Answers not-ready, or read version now_ms changed watched marks. Without marks the caller has them: nothing changed since.
if redis.call('HGET', keys.meta, 'epoch') ~= ARGV[2] or not is_ready(keys.meta, keys.meta) then return {'not-ready'} end
local maps = {}
for i = 5, #ARGV do maps[i - 4] = keys.map .. ARGV[i] end
local found = #maps > 0 and redis.call('MGET', unpack(maps)) or {}
for i = 1, #maps do
  if not found[i] then
    mark_lost(keys.meta)
    return {'not-ready'}
  end
end
local marks, now = table.concat(found), clock(keys.meta, ARGV[1])
local last = redis.call('HMGET', keys.seats, 'epoch', 'version', 'marks', 'reserved')
local version, changed = tonumber(last[2] or 0), last[1] ~= ARGV[2] or last[3] ~= marks or (last[4] or '') ~= ARGV[4]
if changed then
  version = math.max(version + 1, now)
  redis.call('HSET', keys.seats, 'epoch', ARGV[2], 'version', text(version), 'marks', marks, 'reserved', ARGV[4])
end
return {'read', text(version), text(now), changed and '1' or '0', text(redis.call('EXISTS', keys.watched)),
        text(version) ~= ARGV[3] and marks or ''}
