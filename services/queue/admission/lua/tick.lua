-- One tick of the gatekeeper: ends unclaimed calls, refills the token bucket, calls the next live places. Any number of
-- gatekeepers may run it: the bucket only moves forward in Redis' time, so running it twice calls nobody twice.
-- Answers {reason}, or {'ok', state as JSON, changes not yet in the database, sessions that are due to end}.
-- KEYS[1] room hash the room
-- KEYS[2] called zset standing calls: lane:seq -> claim deadline (ms)
-- KEYS[3] active zset sessions: lane:seq -> end (ms)
-- KEYS[4] misses hash how many calls each place missed
-- KEYS[5] unwritten zset number -> change not yet in the database
-- KEYS[6+] lane_keys list per lane: inflight, alive:0, alive:1, alive:2, taken, done
-- ARGV[1] epoch int the epoch the caller knows
-- ARGV[2] heartbeat_gap int 1: heartbeats may have been lost, so all places are taken as live for three windows
-- ARGV[3] stock_available int free tickets by inventory's last frame; -1 when there is no fresh frame
-- ARGV[4] holders_holding int how many holders have a live reservation
-- ARGV[5] holds_begun int total of holders who took a first hold
-- ARGV[6] holds_released int total of holders whose last hold ended without a purchase
-- ARGV[7] stock_version int version of inventory's frame, 0 without one
-- ARGV[8] stock str plenty, last_chance, sold_out or unknown (the last known level stays)
-- ARGV[9] clock_offset_ms int added to Redis' clock; 0 outside tests
-- ARGV[10] others_ms int the slower of the database's and this process's clock
-- ARGV[11+] lanes list the lanes, in the order of their keys
local called, active, misses, unwritten = KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local CALLS_MAX, MISSES_MAX, DUE_MAX, CHANGES_MAX, BACKLOG_MAX, APART_MS = 2000, 500, 200, 2500, 10000, 60000
local MAIN_BYTES, RETURNERS_BYTES = 32768, 8192
local BATCH_DEAD_MS, LATE_TICK_MS, RAMP_MS = 5000, 400, 30000

-- Every key must exist, except those of a new lane.
local flat = redis.call('HGETALL', KEYS[1])
for i = 1, #flat, 2 do room[flat[i]] = flat[i + 1] end
local lanes, by_name, new_lanes, required = {}, {}, {}, {unpack(KEYS, 1, 5)}
for i = 11, #ARGV do
  local k, name = 6 + (i - 11) * 6, ARGV[i]
  local lane = {name = name, inflight = KEYS[k], alive = {KEYS[k + 1], KEYS[k + 2], KEYS[k + 3]}, taken = KEYS[k + 4],
    done = KEYS[k + 5], head = number('head_seq:' .. name), tail = number('join_seq:' .. name)}
  lanes[#lanes + 1], by_name[name] = lane, lane
  if room['join_seq:' .. name] then
    for at = k, k + 5 do required[#required + 1] = KEYS[at] end
  else
    new_lanes[name] = k
  end
end
local reason = refusal(ARGV[1], required)
if reason then return {reason} end

local now, last_ms, others, window_ms = redis_clock(ARGV[9]), number('last_ms'), tonumber(ARGV[10]), number('liveness_window_ms')
if now + APART_MS >= last_ms then now = math.max(now, last_ms) end  -- stands still for a minute at most
local slowest = math.min(now, others)  -- a deadline that a fan was given ends by the slowest clock
local set = {last_ms = now, others_ms = others}

-- Redis' clock stepped forward: a window has passed by it since the last tick, and less by the other clocks. Then what is
-- told by its age cannot be told: no heartbeat is old, and no batch is dead.
local passed = math.max(0, others - (tonumber(room.others_ms) or -math.huge))
local stepped = now - last_ms - passed >= window_ms

-- A lane without a counter is new: its keys are created.
for name, k in pairs(new_lanes) do
  redis.call('DEL', unpack(KEYS, k, k + 5))
  mark_lane(KEYS, k)
  set['join_seq:' .. name] = 0
end

-- Liveness windows: the first tick in a window clears the slots that were passed.
for _, lane in ipairs(lanes) do
  local window, last = enter_window(lane.name, now, lane.alive)
  if window ~= last then set['window:' .. lane.name] = window end
end
local assume_until = now + 3 * window_ms
if ARGV[2] ~= '1' and not stepped then assume_until = math.min(number('assume_live_until_ms'), assume_until) end
set.assume_live_until_ms = assume_until
local assume_live = now < assume_until

-- The scan stops before the lowest number still being written to the database; a batch that is not renewed is dead.
for _, lane in ipairs(lanes) do
  for _, member in ipairs(stepped and redis.call('ZRANGEBYSCORE', lane.inflight, '-inf', '(+inf') or {}) do
    redis.call('ZADD', lane.inflight, now, member)
  end
  redis.call('ZREMRANGEBYSCORE', lane.inflight, '-inf', '(' .. string.format('%.0f', now - BATCH_DEAD_MS))
  lane.limit = lane.tail
  for _, member in ipairs(redis.call('ZRANGEBYSCORE', lane.inflight, '-inf', '(+inf')) do
    lane.limit = math.min(lane.limit, tonumber(string.match(member, '^%d+')) - 1)
  end
end

-- Unclaimed calls free their slot; after a miss the place may be called again, after max_misses it has ended.
local overdue = redis.call('ZRANGEBYSCORE', called, '-inf', string.format('%.0f', slowest), 'LIMIT', 0, MISSES_MAX)
for _, place in ipairs(overdue) do
  local lane_name, seq = string.match(place, '^(%d+):(%d+)$')
  local lane = by_name[lane_name]
  if lane then
    redis.call('ZREM', called, place)
    local missed = redis.call('HINCRBY', misses, place, 1)
    if missed >= number('max_misses') then
      redis.call('SETBIT', lane.done, seq, 1)
      change(unwritten, now, 'spent', place, missed, now)
    else
      redis.call('SETBIT', lane.taken, seq, 0)
      change(unwritten, now, 'missed', place, missed, now)
    end
  end
end

-- The room's effective state at this moment.
local available, coupled = tonumber(ARGV[3]), room.stock_coupling == '1'
if ARGV[8] ~= 'unknown' or not coupled then
  room.stock = coupled and ARGV[8] or 'unknown'
  set.stock = room.stock
end
if available >= 0 and room.stock_known ~= '1' then
  room.stock_known = '1'
  set.stock_known = 1
end
local shown, runs = room.state, room.state == 'open' or room.state == 'draining'
if (runs or shown == 'paused') and number('ends_ms') > 0 and now >= number('ends_ms') then
  shown = 'closed'
elseif runs then
  if now < number('opens_ms') then
    shown = 'draft'
  elseif now < number('starts_ms') then
    shown = 'prequeue'
  elseif coupled and (room.stock == 'sold_out' or room.stock == 'last_chance') then
    shown = room.stock
  end
end
set.shown = shown

-- The bucket only moves forward and starts empty. Its capacity covers a late tick, so `burst: 1` gives a fixed rate.
local rate = number('rate_per_s')
local since = math.max(0, now - (tonumber(room.bucket_ms) or now))
if number('ramp_ms') > 0 then
  rate = rate * math.min(1, 0.2 + 0.8 * math.max(0, now - since - number('ramp_ms')) / RAMP_MS)
end
local cap = math.max(number('burst'), number('rate_per_s') * LATE_TICK_MS / 1000)
-- Tokens saved at a higher rate are cut in proportion to the present rate; at rate 0 none are left.
local saved, saved_at = number('tokens'), tonumber(room.saved_at_rate) or rate
if rate < saved_at or rate <= 0 then saved = rate <= 0 and 0 or saved * rate / saved_at end
local tokens, floor_tokens = 0, 0
local calling = shown == 'open' or shown == 'draining'
local was_calling = room.shown == 'open' or room.shown == 'draining' or room.shown == 'last_chance'
if calling and was_calling then
  tokens = math.min(cap, saved + rate * since / 1000)
  floor_tokens = refill_floor(rate, since)
elseif shown == 'last_chance' and was_calling then
  tokens = math.min(cap, saved)
end
set.token_cap, set.saved_at_rate = cap, rate
set.bucket_ms = now

local called_n, active_n, in_progress = size(called), size(active), count_in_progress(now, called, active)
local at_most, extra = under_ceiling(tokens, floor_tokens, in_progress), number('admit_now')
local free = math.min(at_most + extra + 1e-6, number('max_active') - active_n - called_n)
local expected_n, kept = count_expected_buyers(now, number('claim_window_s') * 1000, active_n,
  {version = tonumber(ARGV[7]), begun = tonumber(ARGV[5]), released = tonumber(ARGV[6])})
for name, value in pairs(kept) do set[name] = value end
local uncommitted = math.huge  -- free tickets that no called or admitted fan is expected to buy
if coupled and available >= 0 then
  uncommitted = available - called_n - math.min(expected_n, math.max(0, active_n - tonumber(ARGV[4])))
elseif coupled and room.stock_known == '1' then
  uncommitted = 0
end
free = math.min(free, uncommitted)
local backlog = size(unwritten)
if not calling or backlog > BACKLOG_MAX then free = shown == 'paused' and math.min(free, extra) or 0 end
local n = math.max(0, math.floor(math.min(free, CALLS_MAX)))

local deadline = now + number('claim_window_s') * 1000
local function call(lane, seqs)
  local keys = {called = called, misses = misses, unwritten = unwritten, taken = lane.taken}
  for _, seq in ipairs(seqs) do call_place(keys, lane.name, seq, now, deadline) end
  return #seqs
end

-- Returners: live, free places at or below the head, by a cursor that wraps. They always need a liveness bit.
local function call_returners(lane, want)
  if want < 1 or lane.head < 1 then return 0 end
  local name = 'cursor:' .. lane.name
  local from = (tonumber(set[name]) or number(name)) + 1
  if from > lane.head then from = 1 end
  local found, last = scan(lane, from, lane.head, want, RETURNERS_BYTES, false)
  set[name] = last
  return call(lane, found)
end

local function call_main(lane, want)
  if want < 1 then return 0 end
  local found, last = scan(lane, lane.head + 1, lane.limit, want, MAIN_BYTES, assume_live)
  if not assume_live and last > lane.head then
    set.scanned = (set.scanned or number('scanned')) + last - lane.head
    set.live = (set.live or number('live')) + #found
  end
  lane.head = math.max(lane.head, last)
  set['head_seq:' .. lane.name] = lane.head
  return call(lane, found)
end

local returning_share = number('returning_share')
local function call_lane(lane, want)
  local owed = math.min(want, math.floor(lane.credit + returning_share * want + 1e-9))
  local returned = call_returners(lane, owed)
  local main = call_main(lane, want - returned)
  local got = returned + main + call_returners(lane, want - returned - main)
  lane.credit = math.max(0, math.min(1, lane.credit + returning_share * got - returned))
  return got
end

-- A lane takes part from its own start on. Calls made while lanes contend are totalled for the invariant of weights.
local open, weights = {}, 0
for _, lane in ipairs(lanes) do
  if now >= number('lane_opens_ms:' .. lane.name) then
    lane.weight, lane.waits = math.max(1, number('weight:' .. lane.name)), lane.head < lane.limit
    lane.owed, lane.credit = number('owed:' .. lane.name), number('credit:' .. lane.name)
    open[#open + 1], weights = lane, weights + lane.weight
  end
end
local calls, contended = share_calls(open, n, call_lane)
save_shares(open, weights, calls, contended, set)
if n > 0 then
  set.is_contended = contended and 1 or 0
  set.contention_periods = number('contention_periods') + (contended and room.is_contended ~= '1' and 1 or 0)
end
local admitted = math.min(extra, calls)  -- manual admissions cost no tokens; those not made now lapse
set.floor_tokens = string.format('%.6f', math.max(0, floor_tokens - (calls - admitted)))
local held_back = holds_back(now, open, set, calls, math.floor(at_most + extra + 1e-6), tokens + extra)
set.admit_now, set.manually_admitted = 0, number('manually_admitted') + admitted
set.tokens = string.format('%.6f', math.max(0, tokens - (calls - admitted)))
set.calls = number('calls') + calls
if calls > 0 then set.called_at_ms = now end
set.change_n = string.format('%.0f', number('change_n'))
set.version = math.max(number('version') + 1, now)

local writes = {}
for name, value in pairs(set) do
  writes[#writes + 1] = name
  writes[#writes + 1] = type(value) == 'number' and string.format('%.17g', value) or value
end
redis.call('HSET', KEYS[1], unpack(writes))

local state = {now_ms = now, version = set.version, shown = shown, config_version = number('config_version'),
  generation = number('generation'), rate_per_s = rate, called = called_n + calls, active = active_n, calls = set.calls,
  manually_admitted = set.manually_admitted, scanned = set.scanned or number('scanned'),
  live = set.live or number('live'), tokens = tonumber(set.tokens), backlog = backlog,
  in_progress = in_progress + calls, held_back = held_back,
  assume_live_until_ms = assume_until, busy = calls == CALLS_MAX or #overdue == MISSES_MAX,
  stock_bound = calling and uncommitted < 1 + calls,
  calls_left = uncommitted < math.huge and math.max(0, uncommitted - calls) or nil,
  called_at_ms = set.called_at_ms or number('called_at_ms'), stock = room.stock or 'unknown', lanes = {}}
for i, lane in ipairs(lanes) do
  local function total(name) return set[name .. lane.name] or number(name .. lane.name) end
  state.lanes[i] = {lane = tonumber(lane.name), head_seq = lane.head, tail_seq = lane.tail, calls = total('calls:'),
    contended_calls = total('contended_calls:'), fair_share = total('fair_share:'),
    contention_periods = set.contention_periods or number('contention_periods')}
end
local ends, due = redis.call('ZRANGEBYSCORE', active, '-inf', string.format('%.0f', slowest), 'WITHSCORES', 'LIMIT', 0, DUE_MAX), {}
for i = 1, #ends, 2 do
  due[#due + 1] = string.format('%s:%d:%.0f', ends[i], call_number(misses, ends[i]), ends[i + 1])
end
local changes = redis.call('ZRANGEBYSCORE', unwritten, '-inf', '(+inf', 'LIMIT', 0, CHANGES_MAX)
return {'ok', cjson.encode(state), changes, due}
