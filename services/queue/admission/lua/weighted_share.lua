-- Shares a number of calls among lanes by weight (deficit round robin); a part of tick.lua that touches no key.
-- Each lane is owed its share of every call, and what it is owed is carried between ticks, so half a call a second is
-- shared as exactly as a thousand. The lane that is owed most goes first. Calls a lane cannot use go to the others at
-- once, while its debt stays. When no lane has anybody left to call, all debts are cleared.
-- `lanes`: {weight, owed, waits (fans above the head)}; `call(lane, want)` returns how many it called. Sets `made`.
-- Returns how many were called and whether the lanes contended: two or more, and each had enough fans to call.
local function share_calls(lanes, n, call)
  local left, fresh, calls, contended = {unpack(lanes)}, n, 0, n > 0 and #lanes > 1
  for _, lane in ipairs(lanes) do
    lane.made = 0
    contended = contended and lane.waits
  end
  while calls < n and #left > 0 do
    local weights, first = 0, 1
    for _, lane in ipairs(left) do weights = weights + lane.weight end
    for i, lane in ipairs(left) do
      lane.owed = lane.owed + fresh * lane.weight / weights
      if lane.owed > left[first].owed + 1e-9 then first = i end
    end
    local lane = left[first]
    local want = math.min(n - calls, math.max(1, math.floor(lane.owed + 1e-9)))
    local got = call(lane, want)
    lane.made, lane.owed, calls, fresh = lane.made + got, lane.owed - got, calls + got, 0
    if got < want then
      fresh, lane.owed, contended = math.max(0, lane.owed), math.min(0, lane.owed), false
      table.remove(left, first)
    end
  end
  if #left == 0 then
    for _, lane in ipairs(lanes) do lane.owed = 0 end
  end
  return calls, contended
end

-- Saves each lane's debt and totals: `contended_calls` is what it was given while lanes contended, `fair_share` what
-- its weight entitled it to.
local function save_shares(lanes, weights, calls, contended, set)
  for _, lane in ipairs(lanes) do
    local function add(name, more) set[name .. lane.name] = number(name .. lane.name) + more end
    set['owed:' .. lane.name], set['credit:' .. lane.name] = lane.owed, lane.credit
    add('calls:', lane.made)
    add('contended_calls:', contended and lane.made or 0)
    add('fair_share:', contended and calls * lane.weight / weights or 0)
  end
end

