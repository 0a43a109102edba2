-- Shares a number of calls among lanes by weight; it stands in front of the tick and touches no key.
-- Each lane is owed its part of every call, and what it is owed is carried between turns, so half a call per second is
-- shared as exactly as a thousand. Whoever is owed most goes first. What a lane has nobody for goes to the others at
-- once; its debt stays. When nobody is left to call, all are even.
-- `lanes`: {weight, owed, waits (somebody above the head)}; `call(lane, want)` answers how many it called. Adds `made`.
-- Answers how many were called, and whether it was contested: two lanes or more, and each had enough to call.
local function share_calls(lanes, n, call)
  local left, fresh, calls, contested = {unpack(lanes)}, n, 0, n > 0 and #lanes > 1
  for _, lane in ipairs(lanes) do
    lane.made = 0
    contested = contested and lane.waits
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
      fresh, lane.owed, contested = math.max(0, lane.owed), math.min(0, lane.owed), false
      table.remove(left, first)
    end
  end
  if #left == 0 then
    for _, lane in ipairs(lanes) do lane.owed = 0 end
  end
  return calls, contested
end

-- Notes what each lane is owed and was given: `due` is its share by weight of contested calls, `contested` what it got.
local function note_shares(lanes, weights, calls, contested, number, set)
  for _, lane in ipairs(lanes) do
    local function add(name, more) set[name .. lane.name] = number(name .. lane.name) + more end
    set['owed:' .. lane.name], set['credit:' .. lane.name] = lane.owed, lane.credit
    add('calls:', lane.made)
    add('contested:', contested and lane.made or 0)
    add('due:', contested and calls * lane.weight / weights or 0)
  end
end

