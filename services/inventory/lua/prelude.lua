-- What every verb of the gate shares. A basket is text: `A:0,5;GA1*3` is seats 0 and 5 of A and three tickets of GA1.
-- A mark is one character of a section's map; counts follow the marks, so they cannot drift apart.

local NAMES = {['.'] = 'available', h = 'held', s = 'sold', x = 'blocked'}

local function text(number)
  return string.format('%.0f', number)
end

-- The engine's time in ms, never going back.
local function clock(gate, offset_ms)
  local time = redis.call('TIME')
  local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000) + tonumber(offset_ms)
  local last = tonumber(redis.call('HGET', gate, 'clock') or 0)
  if last > now then return last end
  redis.call('HSET', gate, 'clock', text(now))
  return now
end

local function is_ready(gate)
  return redis.call('HGET', gate, 'ready') == '1'
end

-- The seats {section, position} and the GA tickets {section, quantity} of a basket.
local function lines(basket)
  local seats, ga = {}, {}
  for part in string.gmatch(basket, '[^;]+') do
    local section, quantity = string.match(part, '^([%w_]+)%*(%d+)$')
    if section then
      ga[#ga + 1] = {section, tonumber(quantity)}
    else
      local positions
      section, positions = string.match(part, '^([%w_]+):([%d,]+)$')
      for position in string.gmatch(positions, '%d+') do
        seats[#seats + 1] = {section, tonumber(position)}
      end
    end
  end
  return seats, ga
end

local function put(keys, section, position, mark)
  local map = keys.map .. section
  local old = redis.call('GETRANGE', map, position, position)
  if NAMES[old] and old ~= mark then
    redis.call('SETRANGE', map, position, mark)
    redis.call('HINCRBY', keys.counts, section .. ':' .. NAMES[old], -1)
    redis.call('HINCRBY', keys.counts, section .. ':' .. NAMES[mark], 1)
  end
  redis.call('SADD', keys.dirty, section)
end

-- Moves a basket from one mark to another; a seat that does not carry `from` is left alone. How many moved.
local function move(keys, basket, from, to)
  local seats, ga = lines(basket)
  local moved = 0
  for _, seat in ipairs(seats) do
    if redis.call('GETRANGE', keys.map .. seat[1], seat[2], seat[2]) == from then
      put(keys, seat[1], seat[2], to)
      moved = moved + 1
    end
  end
  for _, ticket in ipairs(ga) do
    redis.call('HINCRBY', keys.counts, ticket[1] .. ':' .. NAMES[from], -ticket[2])
    redis.call('HINCRBY', keys.counts, ticket[1] .. ':' .. NAMES[to], ticket[2])
    redis.call('SADD', keys.dirty, ticket[1])
    moved = moved + ticket[2]
  end
  return moved
end

local function size(basket)
  local seats, ga = lines(basket)
  local n = #seats
  for _, ticket in ipairs(ga) do n = n + ticket[2] end
  return n
end

local function add_tickets(keys, holder, n)
  local left = redis.call('HINCRBY', keys.usage, 't:' .. holder, n)
  if left <= 0 then redis.call('HDEL', keys.usage, 't:' .. holder) end
end

-- The ids of a holder's live reservations.
local function live_ids(keys, holder)
  local ids = {}
  for id in string.gmatch(redis.call('HGET', keys.usage, 'l:' .. holder) or '', '[^,]+') do ids[#ids + 1] = id end
  return ids
end

local function add_live(keys, holder, id)
  local ids = live_ids(keys, holder)
  if #ids == 0 then redis.call('HINCRBY', keys.gate, 'holding', 1) end
  ids[#ids + 1] = id
  redis.call('HSET', keys.usage, 'l:' .. holder, table.concat(ids, ','))
end

local function drop_live(keys, holder, id)
  local kept = {}
  for _, other in ipairs(live_ids(keys, holder)) do
    if other ~= id then kept[#kept + 1] = other end
  end
  if #kept > 0 then
    redis.call('HSET', keys.usage, 'l:' .. holder, table.concat(kept, ','))
  elseif redis.call('HDEL', keys.usage, 'l:' .. holder) == 1 then
    redis.call('HINCRBY', keys.gate, 'holding', -1)
  end
end

local function read_hold(keys, id)
  local found = redis.call('HGET', keys.holds, id)
  return found and cjson.decode(found) or nil
end

local function write_hold(keys, id, hold)
  redis.call('HSET', keys.holds, id, cjson.encode(hold))
end

local function drop_hold(keys, id, hold)
  redis.call('HDEL', keys.holds, id)
  redis.call('ZREM', keys.deadlines, id)
  drop_live(keys, hold.holder, id)
end
