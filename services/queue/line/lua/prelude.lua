-- What every script of the line begins with: the room's fields by name, why a script must not go on, the clock, and the
-- marks that keep empty keys in existence. The first key of every script is the room.
local room = {}

local function number(name) return tonumber(room[name]) or 0 end

-- Reads these fields of the room, and those that every script needs; a field that is missing is false.
local function read_room(...)
  local names = {'ready', 'epoch', 'generation', 'last_ms', ...}
  for i, value in ipairs(redis.call('HMGET', KEYS[1], unpack(names))) do room[names[i]] = value end
end

-- The reason why a script must not go on with these keys: the room is not in Redis or has another epoch, or a key is
-- lost. A lost key would read as nobody called, admitted or ended.
local function refusal(epoch, keys)
  if room.ready ~= '1' then return 'not-ready' end
  if room.epoch ~= epoch then return 'stale-epoch' end
  if redis.call('EXISTS', unpack(keys)) < #keys then return 'not-ready' end
end

local function check_room(epoch, ...)
  read_room(...)
  return refusal(epoch, KEYS)
end

-- Refuses a call whose list, which begins at ARGV[first], is longer than this.
local function limit_list(first, length_max)
  if #ARGV - first + 1 > length_max then error('too many values') end
end

local function redis_clock(offset_ms)
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000) + offset_ms
end

-- The room's time (ms): stands still while Redis' clock is behind the last tick.
local function clock(offset_ms) return math.max(redis_clock(offset_ms), number('last_ms')) end

-- Redis deletes a key that becomes empty, so each holds a mark that no rule matches: a member with an infinite score, a
-- field that names no place, bit 0 of a bitmap. A missing key has therefore been lost.
local MARK, MARKED = 'mark', '\128'

-- Creates the keys of a lane: `keys` from index `k` on are inflight, alive:0, alive:1, alive:2, taken, done of a lane.
local function mark_lane(keys, k)
  redis.call('ZADD', keys[k], '+inf', MARK)
  for i = k + 1, k + 5 do redis.call('SETBIT', keys[i], 0, 1) end
end

-- Clears the slots (`alive`) of the liveness windows that a lane has passed; returns the present window and the last.
local function enter_window(lane, now, alive)
  local window, last = math.floor(now / number('liveness_window_ms')), number('window:' .. lane)
  for w = math.max(last + 1, window - 2), window do redis.call('SET', alive[1 + w % 3], MARKED) end
  return window, last
end

-- Enters the present window and returns the key of its slot.
local function present_slot(lane, now, alive)
  local window, last = enter_window(lane, now, alive)
  if window > last then redis.call('HSET', KEYS[1], 'window:' .. lane, window) end
  return alive[1 + window % 3]
end

-- How many members a sorted set has besides its mark.
local function size(key) return redis.call('ZCARD', key) - 1 end

-- The number of a place's next call, or of the one that stands.
local function call_number(misses, place) return tonumber(redis.call('HGET', misses, place) or 0) + 1 end

-- Records a change that is not yet in the database. Changes are numbered by time, so their numbers keep rising across a
-- loss of Redis.
local function change(unwritten, now, what, place, call, at)
  room.change_n = math.max(number('change_n') + 1, now * 1000)
  local n = string.format('%.0f', room.change_n)
  redis.call('ZADD', unwritten, n, string.format('%s:%s:%s:%d:%.0f', n, what, place, call, at))
end

-- Calls a place until `deadline`. `keys` are called, misses, unwritten and the lane's taken.
local function call_place(keys, lane, seq, now, deadline)
  local place = string.format('%s:%d', lane, seq)
  redis.call('SETBIT', keys.taken, seq, 1)
  redis.call('ZADD', keys.called, deadline, place)
  change(keys.unwritten, now, 'called', place, call_number(keys.misses, place), deadline)
end

