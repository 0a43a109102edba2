-- Who is expected to take tickets yet; it stands in front of the tick and touches no key.
-- A session counts as a coming buyer for one claim window from its admission on, and once more from the end of its last
-- hold on; then its fan may still buy, but no ticket waits for it. Only numbers are kept, by the moment they run out:
-- `until:count …`, oldest first, in at most 17 parts. Who begins to hold has come: that takes the oldest number away.
local COMING_PARTS = 16

-- `r`: the room; `now`, `window_ms`; `active_n`: sessions; `stock`: {version, begun, let_go}, running totals of
-- inventory, looked at once per version (0: none is known). Answers how many are coming, and what to keep.
local function count_coming(r, now, window_ms, active_n, stock)
  local list, claims = {}, tonumber(r.claims) or 0
  local function add(count)
    local part = math.max(1, window_ms / COMING_PARTS)
    local at, last = math.floor(now / part) * part + window_ms, list[#list]
    if last and last[1] >= at then
      last[2] = last[2] + count
    elseif count > 0 then
      list[#list + 1] = {at, count}
    end
  end

  for at, count in string.gmatch(r.coming or '', '(%d+):(%d+)') do
    at = math.min(tonumber(at), now + window_ms)
    if at > now then list[#list + 1] = {at, tonumber(count)} end
  end
  -- A room that was filled anew has forgotten when its sessions began.
  add(r.coming and math.max(0, claims - (tonumber(r.claims_seen) or 0)) or active_n)

  local seen_version, begun, let_go = tonumber(r.stock_version) or 0, tonumber(r.holds_begun) or 0, tonumber(r.holds_let_go) or 0
  if stock.version > seen_version then
    local came = 0
    if seen_version > 0 and stock.begun >= begun and stock.let_go >= let_go then
      add(stock.let_go - let_go)
      came = stock.begun - begun
    end
    while came > 0 and list[1] do
      local taken = math.min(came, list[1][2])
      list[1][2], came = list[1][2] - taken, came - taken
      if list[1][2] == 0 then table.remove(list, 1) end
    end
    seen_version, begun, let_go = stock.version, stock.begun, stock.let_go
  end

  local coming_n, texts = 0, {}
  for i, entry in ipairs(list) do
    coming_n, texts[i] = coming_n + entry[2], string.format('%.0f:%d', entry[1], entry[2])
  end
  return coming_n, {coming = table.concat(texts, ' '), claims_seen = claims, stock_version = seen_version, holds_begun = begun,
    holds_let_go = let_go}
end

