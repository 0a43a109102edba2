-- Functions that every script uses, on `keys`, the keys that the script's header names. A selection is text:
-- `A:0,5;GA1*3;~child*2` is seats 0 and 5 of A and three tickets of GA1, two of them all of the price type child, which are
-- counted like GA tickets and are none. A mark is one character of a section's map; counts follow the marks, so they
-- cannot drift apart.

local NAMES = {['.'] = 'available', h = 'held', s = 'sold', x = 'blocked'}

local function text(number)
  return string.format('%.0f', number)
end

-- Redis' time in ms and its clock itself. The time stands still while the clock is set back by up to a minute; after a larger
-- step it follows the clock, so that a clock that was an hour ahead does not stop the time for an hour.
local APART_MS = 60000
local function clock(meta, offset_ms)
  local time = redis.call('TIME')
  local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000) + tonumber(offset_ms)
  local last = tonumber(redis.call('HGET', meta, 'clock') or 0)
  if last > now and last - now <= APART_MS then return last, now end
  redis.call('HSET', meta, 'clock', text(now))
  return now, now
end

-- A key is lost: marks the stock as not ready, and ends the lease of a rebuild so that the next one may begin at once.
local lost = false
local function mark_lost(meta)
  lost = true
  redis.call('HSET', meta, 'ready', '0', 'rebuild_renewed_at', '0')
end

-- Whether these keys all exist. Each has existed since the rebuild began, with a marker; a lost one would read as nothing
-- held, nothing available, no limit used.
local function all_exist(meta, ...)
  if redis.call('EXISTS', ...) == select('#', ...) then return true end
  mark_lost(meta)
  return false
end

local function is_ready(meta, ...)
  return redis.call('HGET', meta, 'ready') == '1' and all_exist(meta, ...)
end

-- Marks a section as changed, once per script.
local touched = {}
local function touch(section)
  if not touched[section] then redis.call('SADD', keys.dirty, section) end
  touched[section] = true
end

-- Parses a selection: its seats as runs of neighbours {section, first, count}, its GA tickets and price types {section,
-- quantity}, and the number of tickets.
local function parse(selection)
  local runs, ga, size = {}, {}, 0
  for section, kind, what in string.gmatch(selection, '([%w_~-]+)([:*])([%d,]+)') do
    if kind == '*' then
      ga[#ga + 1] = {section, tonumber(what)}
      if string.sub(section, 1, 1) ~= '~' then size = size + tonumber(what) end
    else
      local run
      for found in string.gmatch(what, '%d+') do
        local position = tonumber(found)
        if run and position == run[2] + run[3] then
          run[3] = run[3] + 1
        else
          run = {section, position, 1}
          runs[#runs + 1] = run
        end
        size = size + 1
      end
    end
  end
  return runs, ga, size
end

-- A run's marks in its section's map; shorter than the run if the map is lost, and then the stock is not ready.
local function marks(run)
  local found = redis.call('GETRANGE', keys.map .. run[1], run[2], run[2] + run[3] - 1)
  if #found < run[3] then mark_lost(keys.meta) end
  return found
end

-- By how much each count changes; written at the end, once for all that a script does.
local counted = {}
local function add_count(section, name, n)
  local field = section .. ':' .. name
  counted[field] = (counted[field] or 0) + n
  touch(section)
end

local function count(section, from, to, n)
  add_count(section, NAMES[from], -n)
  add_count(section, NAMES[to], n)
end

local function write_counts()
  for field, n in pairs(counted) do redis.call('HINCRBY', keys.counts, field, n) end
end

local function available(section)
  local field = section .. ':available'
  return tonumber(redis.call('HGET', keys.counts, field) or 0) + (counted[field] or 0)
end

-- Changes a selection's places from one mark to another; a seat that does not have the mark `from` stays as it is.
local function set_marks(runs, ga, from, to)
  for _, run in ipairs(runs) do
    local now, moved = string.gsub(marks(run), '[' .. from .. ']', to)
    if moved > 0 then
      redis.call('SETRANGE', keys.map .. run[1], run[2], now)
      count(run[1], from, to, moved)
    end
  end
  for _, ticket in ipairs(ga) do count(ticket[1], from, to, ticket[2]) end
end

local function listed(ids_with_commas)
  local ids = {}
  for id in string.gmatch(ids_with_commas or '', '[^,]+') do ids[#ids + 1] = id end
  return ids
end

-- The ids of a holder's live reservations.
local function live_ids(holder)
  return listed(redis.call('HGET', keys.usage, 'l:' .. holder))
end

local function read_hold(id)
  local found = redis.call('HGET', keys.holds, id)
  return found and cjson.decode(found) or nil
end
