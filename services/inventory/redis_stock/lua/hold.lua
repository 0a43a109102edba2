-- Makes holds, each for one holder, each whole or not at all. It never releases anything: a denial names due holds. It also
-- changes the price types of a live hold, of the same places.
-- KEYS[1] meta hash readiness, epoch, clock
-- KEYS[2] counts hash per section
-- KEYS[3] holds hash live reservations
-- KEYS[4] deadlines zset when a hold may be released
-- KEYS[5] usage hash per holder
-- KEYS[6] revoked zset revoked passes
-- KEYS[7] gone hash reservations that ended of late
-- KEYS[8] gone_before hash those that ended before
-- KEYS[9] dirty set sections changed
-- KEYS[10] map prefix of the sections' maps
-- ARGV[1] clock_offset_ms int moves the clock
-- ARGV[2] due_ms int until PostgreSQL must have written it
-- ARGV[3] others_ms int the time by the slower of the other clocks
-- ARGV[4+] requests list JSON each: reservation_id, holder, jti, pass_epoch, stock_hash, body_hash, hold_ttl_ms, tickets_max
--   (per holder, 0 is unlimited), live_max (reservations per holder), and selection, or best {quantity, types, price_blocks, avoid,
--   split, tidy, accessible}; with selection maybe pools (by section, those to try first) and single_seats {blocks, avoid, refuse}. Of a live hold: reservation_id, holder,
--   change, the selection with its places and new price types
-- Answers per request: held epoch until_ms selection, and if it leaves seats alone these and the better choice | again id epoch until_ms selection | reused | revoked | not-ready | clocks-apart ahead_ms | gone
--        | seats-taken/single-seat/no-adjacent-seats/no-accessible-places/sold-out/limit-exceeded now_ms detail due_id…
local clock_offset_ms, due_ms, others_ms = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local NAMED_MAX, DUE_MAX = 100, 20
local new_holders = 0

local found = redis.call('HMGET', keys.meta, 'ready', 'epoch', 'min_pass_epoch')
local ready, epoch, min_pass_epoch = found[1] == '1', found[2], tonumber(found[3] or 0)
ready = ready and all_exist(keys.meta, keys.counts, keys.holds, keys.deadlines, keys.usage, keys.revoked, keys.gone,
                            keys.gone_before)
local now, redis_ms = others_ms, others_ms
if ready then now, redis_ms = clock(keys.meta, clock_offset_ms) end
local ahead_ms = redis_ms - others_ms

local function deny(reason, detail)
  local by_all = text(math.min(now, others_ms))
  local due = redis.call('ZRANGEBYSCORE', keys.deadlines, '-inf', by_all, 'LIMIT', 0, DUE_MAX)
  return {reason, by_all, detail, unpack(due)}
end

-- The answer to a repeated request: under the same id, or for the same places under another.
local function repeated(request, live)
  local same = read_hold(request.reservation_id)
  if same then
    if same.holder ~= request.holder or same.stock ~= request.stock_hash or same.body ~= request.body_hash then
      return {'reused'}
    end
    return {'again', request.reservation_id, epoch, text(same['until']), same.selection}
  end
  for _, id in ipairs(live) do
    local other = read_hold(id)
    if other and other.stock == request.stock_hash then
      return {'again', id, epoch, text(other['until']), other.selection}
    end
  end
end

-- Why the places cannot be held, as a denial; nil if all are available.
local function conflict(runs, ga)
  local taken, short = {}, {}
  for _, run in ipairs(runs) do
    local found = marks(run)
    if found ~= string.rep('.', run[3]) then
      for i = 1, run[3] do
        if string.sub(found, i, i) ~= '.' and #taken < NAMED_MAX then
          taken[#taken + 1] = run[1] .. ':' .. text(run[2] + i - 1)
        end
      end
    end
  end
  if lost then return {'not-ready'} end
  if #taken > 0 then return deny('seats-taken', table.concat(taken, ';')) end
  for _, ticket in ipairs(ga) do
    local left = available(ticket[1])
    if left < ticket[2] then short[#short + 1] = ticket[1] .. '*' .. math.max(0, left) end
  end
  if #short > 0 then return deny('sold-out', table.concat(short, ';')) end
end

-- The selection with the tickets of each of these sections from the first of its pools that has enough, else from the section
-- itself; if it has too few as well, from where most are left.
local function from_pools(selection, pools)
  return (string.gsub(selection, '([%w_~-]+)%*(%d+)', function(section, quantity)
    local most, n = section, tonumber(quantity)
    for _, pool in ipairs(pools[section] or {}) do
      if available(pool) >= n then return pool .. '*' .. quantity end
      if available(section) < n and available(pool) > available(most) then most = pool end
    end
    return most .. '*' .. quantity
  end))
end

-- A selection of the best available places, or why there is none.
local function best_selection(want)
  local selection, accessible
  if want.accessible then selection, accessible = best_accessible(want) else selection = best(want) end
  if lost then return nil, {'not-ready'} end
  if selection then return selection .. want.types end
  if accessible then return nil, deny('no-accessible-places', accessible) end
  local left, widest = left_of(want)
  if lost then return nil, {'not-ready'} end
  if widest then return nil, deny('no-adjacent-seats', text(widest)) end
  return nil, deny('sold-out', table.concat(left, ';'))
end

-- Changes the price types of a hold.
local function change(request)
  local known = read_hold(request.reservation_id)
  if not known or known.holder ~= request.holder then return {'gone'} end
  local _, had = parse(known.selection)
  local _, wanted = parse(request.change)
  local more = {}
  for _, one in ipairs(wanted) do more[one[1]] = one[2] end
  for _, one in ipairs(had) do more[one[1]] = (more[one[1]] or 0) - one[2] end
  local taken, given = {}, {}
  for section, n in pairs(more) do
    if string.sub(section, 1, 1) ~= '~' and n ~= 0 then return {'gone'} end
    if n > 0 then taken[#taken + 1] = {section, n} end
    if n < 0 then given[#given + 1] = {section, -n} end
  end
  local denied = conflict({}, taken)
  if denied then return denied end
  set_marks({}, taken, '.', 'h')
  set_marks({}, given, 'h', '.')
  known.selection = request.change
  redis.call('HSET', keys.holds, request.reservation_id, cjson.encode(known))
  return {'held', epoch, text(known['until']), request.change}
end

local function hold(request)
  if not ready or lost then return {'not-ready'} end
  if math.abs(ahead_ms) > APART_MS then return {'clocks-apart', text(ahead_ms)} end
  if request.change then return change(request) end
  if (request.pass_epoch or 0) < min_pass_epoch or redis.call('ZSCORE', keys.revoked, request.jti) then return {'revoked'} end
  local used = redis.call('HMGET', keys.usage, 't:' .. request.holder, 'l:' .. request.holder)
  local had, live = tonumber(used[1] or 0), listed(used[2])
  local before = repeated(request, live)
  if before then return before end
  if #live >= request.live_max then return deny('limit-exceeded', 'active_reservations_per_customer') end
  local selection, none = request.selection, nil
  if request.best then
    selection, none = best_selection(request.best)
    if none then return none end
  elseif request.pools then
    selection = from_pools(selection, request.pools)
  end
  local runs, ga, quantity = parse(selection)
  if request.tickets_max > 0 and had + quantity > request.tickets_max then
    return deny('limit-exceeded', 'tickets_per_customer')
  end
  local denied = conflict(runs, ga)
  if denied then return denied end
  local alone, better
  if request.single_seats then
    alone, better = leaves_alone(runs, request.single_seats)
    if lost then return {'not-ready'} end
    if alone and better ~= '' and request.single_seats.refuse then return deny('single-seat', alone .. '|' .. better) end
  end
  local until_ms = now + request.hold_ttl_ms
  set_marks(runs, ga, '.', 'h')
  redis.call('HSET', keys.holds, request.reservation_id,
             cjson.encode({holder = request.holder, stock = request.stock_hash, body = request.body_hash,
                           selection = selection, ['until'] = until_ms}))
  redis.call('ZADD', keys.deadlines, text(now + due_ms), request.reservation_id)
  if #live == 0 then new_holders = new_holders + 1 end
  live[#live + 1] = request.reservation_id
  redis.call('HSET', keys.usage, 't:' .. request.holder, had + quantity, 'l:' .. request.holder, table.concat(live, ','))
  return {'held', epoch, text(until_ms), selection, alone, better}
end

local answers = {}
for i = 4, #ARGV do answers[i - 3] = hold(cjson.decode(ARGV[i])) end
write_counts()
if new_holders > 0 then
  redis.call('HINCRBY', keys.meta, 'holding', new_holders)
  redis.call('HINCRBY', keys.meta, 'begun', new_holders)
end
return answers
