-- Takes baskets, each for one holder, each whole or not at all. It never frees anything: a refusal names due holds.
-- KEYS[1] meta hash readiness, epoch, clock
-- KEYS[2] counts hash per section
-- KEYS[3] holds hash live reservations
-- KEYS[4] deadlines zset when a hold may be released
-- KEYS[5] usage hash per holder
-- KEYS[6] revoked zset dead passes
-- KEYS[7] dirty set sections changed
-- KEYS[8] map prefix of the sections' maps
-- ARGV[1] clock_offset_ms int moves the clock
-- ARGV[2] due_ms int until the ledger must have written it
-- ARGV[3] others_ms int the time by the other clocks, the slower one
-- ARGV[4+] asks list JSON each: reservation_id, holder, jti, pass_epoch, stock_print, body_print, hold_ttl_ms, tickets_max
--   (per holder, 0 is unlimited), live_max (reservations per holder), and basket or best {quantity, zones, split, tidy}
-- Answers per ask: held epoch until_ms basket | again id epoch until_ms basket | reused | revoked | not-ready | clocks-apart ahead_ms
--        | seats-taken/no-adjacent-seats/sold-out/limit-exceeded now_ms detail due_id…
local keys = {meta = KEYS[1], counts = KEYS[2], holds = KEYS[3], deadlines = KEYS[4], usage = KEYS[5], dirty = KEYS[7],
              map = KEYS[8]}
local revoked = KEYS[6]
local clock_offset_ms, due_ms, others_ms = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local NAMED_MAX, DUE_MAX = 100, 20
local new_holders = 0

local found = redis.call('HMGET', keys.meta, 'ready', 'epoch', 'min_pass_epoch')
local ready, epoch, min_pass_epoch = found[1] == '1', found[2], tonumber(found[3] or 0)
ready = ready and is_whole(keys.meta, keys.counts, keys.holds, keys.deadlines, keys.usage, revoked)
local now, redis_ms = others_ms, others_ms
if ready then now, redis_ms = clock(keys.meta, clock_offset_ms) end
local ahead_ms = redis_ms - others_ms

local function refuse(word, detail)
  local by_all = text(math.min(now, others_ms))
  local due = redis.call('ZRANGEBYSCORE', keys.deadlines, '-inf', by_all, 'LIMIT', 0, DUE_MAX)
  return {word, by_all, detail, unpack(due)}
end

-- The answer to somebody who asked before: under the same id, or for the same stock under another.
local function answered(ask, live)
  local same = read_hold(keys, ask.reservation_id)
  if same then
    if same.holder ~= ask.holder or same.stock ~= ask.stock_print or same.body ~= ask.body_print then
      return {'reused'}
    end
    return {'again', ask.reservation_id, epoch, text(same['until']), same.basket}
  end
  for _, id in ipairs(live) do
    local other = read_hold(keys, id)
    if other and other.stock == ask.stock_print then
      return {'again', id, epoch, text(other['until']), other.basket}
    end
  end
end

-- What stands in the way, as a refusal; nothing when all of it is free.
local function in_the_way(runs, ga)
  local taken, short = {}, {}
  for _, run in ipairs(runs) do
    local found = marks(keys, run)
    if found ~= string.rep('.', run[3]) then
      for i = 1, run[3] do
        if string.sub(found, i, i) ~= '.' and #taken < NAMED_MAX then
          taken[#taken + 1] = run[1] .. ':' .. text(run[2] + i - 1)
        end
      end
    end
  end
  if lost then return {'not-ready'} end
  if #taken > 0 then return refuse('seats-taken', table.concat(taken, ';')) end
  for _, ticket in ipairs(ga) do
    local available = tonumber(redis.call('HGET', keys.counts, ticket[1] .. ':available') or 0)
    if available < ticket[2] then short[#short + 1] = ticket[1] .. '*' .. math.max(0, available) end
  end
  if #short > 0 then return refuse('sold-out', table.concat(short, ';')) end
end

-- The basket of somebody who takes the best there is, or why there is none.
local function picked(want)
  local basket, widest = best(keys, want)
  if lost then return nil, {'not-ready'} end
  if basket then return basket end
  if widest then return nil, refuse('no-adjacent-seats', text(widest)) end
  local left, seen = {}, {}
  for _, zone in ipairs(want.zones) do
    if not seen[zone[1]] then
      left[#left + 1] = zone[1] .. '*' .. (redis.call('HGET', keys.counts, zone[1] .. ':available') or 0)
      seen[zone[1]] = true
    end
  end
  return nil, refuse('sold-out', table.concat(left, ';'))
end

local function hold(ask)
  if not ready or lost then return {'not-ready'} end
  if math.abs(ahead_ms) > APART_MS then return {'clocks-apart', text(ahead_ms)} end
  if (ask.pass_epoch or 0) < min_pass_epoch or redis.call('ZSCORE', revoked, ask.jti) then return {'revoked'} end
  local used = redis.call('HMGET', keys.usage, 't:' .. ask.holder, 'l:' .. ask.holder)
  local had, live = tonumber(used[1] or 0), listed(used[2])
  local before = answered(ask, live)
  if before then return before end
  if #live >= ask.live_max then return refuse('limit-exceeded', 'active_reservations_per_customer') end
  local basket, none = ask.basket, nil
  if ask.best then
    basket, none = picked(ask.best)
    if none then return none end
  end
  local runs, ga, quantity = lines(basket)
  if ask.tickets_max > 0 and had + quantity > ask.tickets_max then
    return refuse('limit-exceeded', 'tickets_per_customer')
  end
  local refused = in_the_way(runs, ga)
  if refused then return refused end
  local until_ms = now + ask.hold_ttl_ms
  move(keys, runs, ga, '.', 'h')
  write_hold(keys, ask.reservation_id, {holder = ask.holder, stock = ask.stock_print, body = ask.body_print,
                                        basket = basket, ['until'] = until_ms})
  redis.call('ZADD', keys.deadlines, text(now + due_ms), ask.reservation_id)
  if #live == 0 then new_holders = new_holders + 1 end
  live[#live + 1] = ask.reservation_id
  redis.call('HSET', keys.usage, 't:' .. ask.holder, had + quantity, 'l:' .. ask.holder, table.concat(live, ','))
  return {'held', epoch, text(until_ms), basket}
end

local answers = {}
for i = 4, #ARGV do answers[i - 3] = hold(cjson.decode(ARGV[i])) end
if new_holders > 0 then
  redis.call('HINCRBY', keys.meta, 'holding', new_holders)
  redis.call('HINCRBY', keys.meta, 'begun', new_holders)
end
return answers
