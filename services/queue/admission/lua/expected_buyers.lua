-- Counts the admitted fans who are still expected to buy; a part of tick.lua that touches no key. A session is expected
-- to buy for one claim window from its admission, and for one more from the end of its last hold; after that its fan
-- may still buy, but no ticket is kept free for it. Only counts are stored, by the time (ms) at which they expire:
-- `until:count …`, oldest first, in at most 17 parts. A holder who takes a hold is removed from the oldest.
local EXPECTED_PARTS = 16

-- `active_n`: open sessions; `stock`: {version, begun, released}, running totals of inventory,
-- applied once per version (0: none is known). Returns the count and the fields to write.
local function count_expected_buyers(now, window_ms, active_n, stock)
  local list, claims = {}, number('claims')
  local function add(count)
    local part = math.max(1, window_ms / EXPECTED_PARTS)
    local at, last = math.floor(now / part) * part + window_ms, list[#list]
    if last and last[1] >= at then
      last[2] = last[2] + count
    elseif count > 0 then
      list[#list + 1] = {at, count}
    end
  end

  for at, count in string.gmatch(room.expected_buyers or '', '(%d+):(%d+)') do
    at = math.min(tonumber(at), now + window_ms)
    if at > now then list[#list + 1] = {at, tonumber(count)} end
  end
  -- After a rebuild it is not known when the sessions began: all of them count from now.
  add(room.expected_buyers and math.max(0, claims - number('claims_counted')) or active_n)

  local last_version, begun, released = number('stock_version'), number('holds_begun'), number('holds_released')
  if stock.version > last_version then
    local arrived = 0
    if last_version > 0 and stock.begun >= begun and stock.released >= released then
      add(stock.released - released)
      arrived = stock.begun - begun
    end
    while arrived > 0 and list[1] do
      local taken = math.min(arrived, list[1][2])
      list[1][2], arrived = list[1][2] - taken, arrived - taken
      if list[1][2] == 0 then table.remove(list, 1) end
    end
    last_version, begun, released = stock.version, stock.begun, stock.released
  end

  local expected_n, texts = 0, {}
  for i, entry in ipairs(list) do
    expected_n, texts[i] = expected_n + entry[2], string.format('%.0f:%d', entry[1], entry[2])
  end
  return expected_n, {expected_buyers = table.concat(texts, ' '), claims_counted = claims, stock_version = last_version,
    holds_begun = begun, holds_released = released}
end

