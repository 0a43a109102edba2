-- Redis follows PostgreSQL: reservations and places are made as PostgreSQL has them; a rebuild is all of them, a repair is what
-- differs. Nothing overrules a newer version, so late and repeated calls do no harm. What has ended is remembered with its
-- version for two to four minutes, longer than any call is under way: `7s` was bought, `7.` was not.
--
-- A reservation is {id, v, now, ...}; `now` is one of
--   h, p   held {until, release_at, has}, or being paid, which has no deadline {until, has}; `has` is its selection. A hold of
--          {release_at} alone was just written, as Redis has it. With {holder, stock, body} one that Redis lost is restored, if
--          the epoch is given; its places come with their sections.
--   s      bought; after it had ended, {has, holder} are bought again.
--   .      ended, or not written because PostgreSQL refused it; then v is 0.
-- Of s and . sold tickets may be `returned` {places, mark, excess, n}, with {holder}: n in all, of which places have this mark
-- now, and excess, by section, were oversold and free no place.
-- KEYS[1] meta hash readiness, epoch, version of the stock
-- KEYS[2] counts hash per section
-- KEYS[3] holds hash live reservations
-- KEYS[4] deadlines zset when a hold may be released
-- KEYS[5] usage hash per holder
-- KEYS[6] gone hash reservations that ended of late
-- KEYS[7] gone_before hash those that ended before
-- KEYS[8] dirty set sections changed
-- KEYS[9] map prefix of the sections' maps
-- ARGV[1] rebuild int 1 in a rebuild, before the stock is ready
-- ARGV[2] epoch int of Redis when PostgreSQL was read; 0 for whichever it is
-- ARGV[3] version int of the event when the places were read; 0 for places without one
-- ARGV[4] reservations text JSON list of at most 64
-- ARGV[5] places text JSON of one of these, or empty: a section as a whole {id, counts, map}; how far its counts are off
--   {id, off}; a GA section {id, capacity, blocked, left}, of which no more than `left` are available; seats {from, to, seats}
--   that have one of the marks `from`
-- ARGV[6+] tickets list holder, how many
-- Answers done, not-ready, stale (Redis has a newer version of the event: read PostgreSQL again), superseded (rebuilt since), or
-- late (a newer change came before a return). After the last two reconciliation finds what is missing.
local rebuild, epoch, version = ARGV[1] == '1', ARGV[2], tonumber(ARGV[3])
local GONE_S = 120
local found = redis.call('HMGET', keys.meta, 'ready', 'epoch', 'stock_version', 'gone_since')
if epoch ~= '0' and found[2] ~= epoch then return 'superseded' end
if not rebuild and found[1] ~= '1' then return 'not-ready' end
if not all_exist(keys.meta, keys.counts, keys.holds, keys.deadlines, keys.usage, keys.gone, keys.gone_before) then
  return 'not-ready'
end
if version > 0 then
  if tonumber(found[3] or 0) > version then return 'stale' end
  redis.call('HSET', keys.meta, 'stock_version', ARGV[3])
end

local live, written, dropped, timed, untimed, ended_now = {}, {}, {}, {}, {}, {}
local holding, ended, late = 0, 0, false -- more holders that hold something, and those whose last hold ended without a sale

local function add_tickets(holder, n)
  local left = redis.call('HINCRBY', keys.usage, 't:' .. holder, n)
  if left <= 0 then redis.call('HDEL', keys.usage, 't:' .. holder) end
end

local function add_live(holder, id)
  local ids = live_ids(holder)
  if #ids == 0 then holding = holding + 1 end
  ids[#ids + 1] = id
  redis.call('HSET', keys.usage, 'l:' .. holder, table.concat(ids, ','))
end

-- True if it was the holder's last.
local function drop_live(holder, id)
  local kept = {}
  for _, other in ipairs(live_ids(holder)) do
    if other ~= id then kept[#kept + 1] = other end
  end
  if #kept > 0 then
    redis.call('HSET', keys.usage, 'l:' .. holder, table.concat(kept, ','))
  elseif redis.call('HDEL', keys.usage, 'l:' .. holder) == 1 then
    holding = holding - 1
    return true
  end
end

-- Changes seats that have one of these marks; `?` is none, and looks whether the map has them at all.
local function set_seats(runs, from, to)
  for mark in string.gmatch(from, '[.hsx?]') do set_marks(runs, {}, mark, to) end
end

-- What is remembered of a reservation that ended: its version, and `s` if it was bought.
local function ended_as(id)
  local known = ended_now[id] or redis.call('HGET', keys.gone, id) or redis.call('HGET', keys.gone_before, id)
  if known then return tonumber(string.sub(known, 1, -2)), string.sub(known, -1) end
end

local function set_deadline(r)
  if r.now == 'p' then
    untimed[#untimed + 1] = r.id
  else
    timed[#timed + 1] = text(r.release_at)
    timed[#timed + 1] = r.id
  end
end

local function follow_live(r, hold)
  if not hold then
    if epoch == '0' or (not rebuild and ended_as(r.id)) then return end
    hold = {holder = r.holder, stock = r.stock, body = r.body}
    add_live(r.holder, r.id)
  elseif (hold.v or 0) > r.v then
    return
  elseif hold.selection ~= r.has then
    local runs, ga, size = parse(hold.selection)
    local kept_runs, kept_ga, kept = parse(r.has)
    set_marks(runs, ga, 'h', '.')
    set_marks(kept_runs, kept_ga, '.', 'h')
    add_tickets(hold.holder, kept - size)
  end
  hold.selection, hold['until'], hold.v = r.has, r['until'], r.v > 1 and r.v or nil
  live[r.id] = cjson.encode(hold)
  written[#written + 1] = r.id
  written[#written + 1] = live[r.id]
  set_deadline(r)
end

-- Ends a hold and returns what its places are then: sold, also if they were returned since.
local function end_hold(r, hold)
  local mark = (r.now == 's' or r.returned) and 's' or '.'
  local runs, ga, size = parse(hold.selection)
  set_marks(runs, ga, 'h', mark)
  live[r.id] = nil
  dropped[#dropped + 1] = r.id
  local is_last = drop_live(hold.holder, r.id)
  if mark == '.' then
    add_tickets(hold.holder, -size)
    if is_last then ended = ended + 1 end
  end
  return mark
end

local function follow_return(r)
  local runs, ga = parse(r.returned.places)
  set_marks(runs, ga, 's', r.returned.mark)
  for section, n in pairs(r.returned.excess) do add_count(section, 'sold', -n) end
  add_tickets(r.holder, -r.returned.n)
end

-- A seat that Redis granted to another holder meanwhile is taken from them, because PostgreSQL will refuse that hold.
local function buy_again(r)
  local runs, ga, size = parse(r.has)
  set_seats(runs, '.hx', 's')
  set_marks({}, ga, '.', 's')
  add_tickets(r.holder, size)
end

local function follow_end(r, hold)
  local was
  if hold then
    if hold.v and hold.v >= r.v then return end
    was = end_hold(r, hold)
  else
    local known, mark = ended_as(r.id)
    late = late or r.returned and known and known > r.v
    if r.v == 0 or known and known >= r.v then return end
    was = mark or (r.returned and 's' or '.')
  end
  if r.returned and was == 's' then
    follow_return(r)
  elseif r.has and was == '.' then
    buy_again(r)
  end
  if r.v > 0 then ended_now[r.id] = text(r.v) .. r.now end
end

local function set_places(p)
  if p.seats then
    set_seats((parse(p.seats)), p.from, p.to)
    return
  end
  if p.map then redis.call('SET', keys.map .. p.id, p.map) end
  if p.capacity then
    local n = redis.call('HMGET', keys.counts, p.id .. ':held', p.id .. ':sold')
    local available = p.capacity - p.blocked - tonumber(n[1] or 0) - tonumber(n[2] or 0)
    p.counts = {available = math.min(available, p.left or available), blocked = p.blocked}
  end
  for name, n in pairs(p.counts or {}) do redis.call('HSET', keys.counts, p.id .. ':' .. name, text(n)) end
  for name, n in pairs(p.off or {}) do add_count(p.id, name, -n) end
  touch(p.id)
end

-- Remembers what has ended now; what ended before is forgotten one generation after the other.
local function remember()
  local fields = {}
  for id, known in pairs(ended_now) do
    fields[#fields + 1] = id
    fields[#fields + 1] = known
  end
  if #fields == 0 then return end
  local now_s, since_s = tonumber(redis.call('TIME')[1]), tonumber(found[4] or 0)
  if math.abs(now_s - since_s) > GONE_S then
    redis.call('UNLINK', keys.gone_before)
    redis.call('RENAME', keys.gone, keys.gone_before)
    redis.call('HSET', keys.gone, 'epoch', found[2])
    redis.call('HSET', keys.meta, 'gone_since', text(now_s))
  end
  redis.call('HSET', keys.gone, unpack(fields))
end

if ARGV[5] ~= '' then set_places(cjson.decode(ARGV[5])) end
local reservations, ids = cjson.decode(ARGV[4]), {}
for i, r in ipairs(reservations) do ids[i] = r.id end
if #ids > 0 then
  for i, raw in ipairs(redis.call('HMGET', keys.holds, unpack(ids))) do live[ids[i]] = raw or nil end
end
for _, r in ipairs(reservations) do
  local raw = live[r.id]
  if r.now == 's' or r.now == '.' then
    follow_end(r, raw and cjson.decode(raw))
  elseif r.has then
    follow_live(r, raw and cjson.decode(raw))
  elseif raw and not string.find(raw, '"v":', 1, true) then -- it has not changed since it was written
    set_deadline(r)
  end
end
if #written > 0 then redis.call('HSET', keys.holds, unpack(written)) end
if #timed > 0 then redis.call('ZADD', keys.deadlines, unpack(timed)) end
if #untimed > 0 then redis.call('ZREM', keys.deadlines, unpack(untimed)) end
if #dropped > 0 then
  redis.call('HDEL', keys.holds, unpack(dropped))
  redis.call('ZREM', keys.deadlines, unpack(dropped))
end
remember()
if holding ~= 0 then redis.call('HINCRBY', keys.meta, 'holding', holding) end
if ended > 0 then redis.call('HINCRBY', keys.meta, 'ended', ended) end
write_counts()
local usage = {}
for i = 6, #ARGV, 2 do
  usage[#usage + 1] = 't:' .. ARGV[i]
  usage[#usage + 1] = ARGV[i + 1]
end
if #usage > 0 then redis.call('HSET', keys.usage, unpack(usage)) end
return lost and 'not-ready' or late and 'late' or 'done'
