-- Replaces all Redis state of a line by what the database holds, atomically. Refused when a later generation or epoch
-- is there already. The room starts with an empty token bucket, all places taken as live, and a rate that ramps up from
-- a fifth. Counters only rise: a number that was given and then lost by the database (a standby that lagged) is not
-- given again. Answers 'ok' or 'older'.
-- KEYS[1] room hash the room
-- KEYS[2] called zset standing calls
-- KEYS[3] active zset sessions
-- KEYS[4] misses hash how many calls each place missed
-- KEYS[5] unwritten zset changes not yet in the database
-- KEYS[6+] lane_keys list per lane: inflight, alive:0, alive:1, alive:2, taken, done
-- ARGV[1] epoch str the room's epoch token: the epoch, followed by .1 once ranks count
-- ARGV[2] generation int number of this rebuild, raised in the database before that was read
-- ARGV[3] ramp int 1: the rate ramps up, as after a loss of Redis
-- ARGV[4] clock_offset_ms int added to Redis' clock; 0 outside tests
-- ARGV[5] fields json names and values of the room, flat
-- ARGV[6] called_json json lane:seq and claim deadline, flat
-- ARGV[7] active_json json lane:seq and session end, flat
-- ARGV[8] misses_json json lane:seq and count, flat
-- ARGV[9+] bitmaps list per lane: taken, done
read_room('version', 'change_n')
if number('generation') >= tonumber(ARGV[2]) or math.floor(number('epoch')) > tonumber(ARGV[1]) then return 'older' end

local now, fields = clock(ARGV[4]), cjson.decode(ARGV[5])
for i = 1, #fields, 2 do
  if room.epoch == ARGV[1] and string.find(fields[i], '^join_seq:') then
    fields[i + 1] = string.format('%d', math.max(fields[i + 1], redis.call('HGET', KEYS[1], fields[i]) or 0))
  end
end
redis.call('DEL', unpack(KEYS))
for i = 1, #fields, 2 do redis.call('HSET', KEYS[1], fields[i], fields[i + 1]) end
local window_ms = redis.call('HGET', KEYS[1], 'liveness_window_ms')
redis.call('HSET', KEYS[1], 'ready', 1, 'epoch', ARGV[1], 'generation', ARGV[2], 'last_ms', now,
  'version', room.version or 0, 'change_n', room.change_n or 0, 'tokens', 0, 'bucket_ms', now,
  'assume_live_until_ms', now + 3 * window_ms, 'ramp_ms', ARGV[3] == '1' and now or 0)

local function restore(key, json, command, scored)
  local pairs_flat = cjson.decode(json)
  for i = 1, #pairs_flat, 2 do
    if scored then
      redis.call(command, key, pairs_flat[i + 1], pairs_flat[i])
    else
      redis.call(command, key, pairs_flat[i], pairs_flat[i + 1])
    end
  end
end
restore(KEYS[2], ARGV[6], 'ZADD', true)
restore(KEYS[3], ARGV[7], 'ZADD', true)
restore(KEYS[4], ARGV[8], 'HSET', false)
for _, key in ipairs({KEYS[2], KEYS[3], KEYS[5]}) do redis.call('ZADD', key, '+inf', MARK) end
redis.call('HSET', KEYS[4], MARK, 0)
for lane = 0, (#KEYS - 5) / 6 - 1 do
  if ARGV[9 + lane * 2] ~= '' then redis.call('SET', KEYS[10 + lane * 6], ARGV[9 + lane * 2]) end
  if ARGV[10 + lane * 2] ~= '' then redis.call('SET', KEYS[11 + lane * 6], ARGV[10 + lane * 2]) end
  mark_lane(KEYS, 6 + lane * 6)
end
return 'ok'
