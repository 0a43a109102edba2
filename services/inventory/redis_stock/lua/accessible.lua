-- The best places for wheelchair users and who comes with them. `want.accessible` is {wheelchair, companions, strict,
-- wheelchair_places, companion_places}: how many of each, whether companions sit only in companion places, and the runs of
-- such places by section, as in a round. Next to each wheelchair place sits one of the companions, in a companion place or,
-- where there is none next to it, in any; more companions and the others sit as near as can be. All are in one row if there
-- is one that has them, within as few seats as can be; else in neighbouring rows of one block, as few as can be.

-- A block's rows by what its places are good for: `w` and `c` are free wheelchair and companion places, `W` and `C` such that
-- are taken, `.` is any other free place.
local function kinds(block, want)
  local function as(free, taken, kept)
    return function(part) return (string.gsub(string.gsub(part, '[^.' .. kept .. ']', taken), '%.', free)) end
  end
  local all, section, rows = offered(block, want.avoid[1]), block[1], {}
  all = marked(all, block, runs_of(want.accessible.wheelchair_places, section), as('w', 'W', ''))
  all = marked(all, block, runs_of(want.accessible.companion_places, section), as('c', 'C', 'wW'))
  for at = 1, #all, block[4] do rows[#rows + 1] = string.sub(all, at, at + block[4] - 2) end
  return rows
end

-- The places of a row from one seat to another by kind, in order. A wheelchair place with a place of its own next to it comes
-- with that one, a companion place in `near`, another in `next_to`; `w` has the wheelchair places without.
local function places_of(row, from, upto, strict)
  local found, used = {near = {}, next_to = {}, w = {}, c = {}, o = {}}, {}
  local at = string.find(row, 'w', from, true)
  while at and at <= upto do
    local around = string.sub(row, math.max(at - 1, 1), at - 1) .. string.sub(row, at + 1, at + 1)
    local own = string.find(around, '[cC]') and 'c' or (not strict and '.')
    local seat
    for _, next_at in ipairs({at - 1, at + 1}) do
      local free = next_at >= from and next_at <= upto and not used[next_at] and string.sub(row, next_at, next_at) == own
      if free and not seat then seat = next_at end
    end
    if seat then used[seat] = true end
    local list = not seat and found.w or own == 'c' and found.near or found.next_to
    list[#list + 1] = {at, seat}
    at = string.find(row, 'w', at + 1, true)
  end
  for place, kind in string.gmatch(string.sub(row, from, upto), '()([c.])') do
    place = place + from - 1
    local list = kind == 'c' and found.c or found.o
    if not used[place] then list[#list + 1] = {place} end
  end
  return found
end

local KINDS = {'near', 'next_to', 'w', 'c', 'o'}

local function counted_of(found)
  local has = {}
  for _, kind in ipairs(KINDS) do has[kind] = #found[kind] end
  return has
end

-- Whether so many places of each kind are enough.
local function enough(has, want)
  local need, strict = want.accessible, want.accessible.strict
  local pairs_wanted = math.min(need.wheelchair, need.companions)
  if has.near + has.next_to + has.w < need.wheelchair or has.near + has.next_to < pairs_wanted then return false end
  local ordinary = math.max(0, pairs_wanted - has.near)  -- companions in ordinary places
  local c = has.c + has.near - (pairs_wanted - ordinary)
  local o = has.o + has.next_to - ordinary - (want.quantity - need.wheelchair - need.companions)
  return o >= 0 and c + (strict and 0 or o) >= need.companions - pairs_wanted
end

-- The smallest part of 1 to `count` that fits, of equals the first; what has more in it fits too.
local function smallest(count, fits)
  local from, first, last = 1, nil, nil
  for upto = 1, count do
    while from <= upto and fits(from, upto) do
      if not first or upto - from < last - first then first, last = from, upto end
      from = from + 1
    end
  end
  return first, last
end

local function count_in(row, kind) return select(2, string.gsub(row, kind, '')) end

-- The first row that has what is wanted.
local function row_with(rows, want, strict)
  for i, row in ipairs(rows) do
    if count_in(row, 'w') >= want.accessible.wheelchair and count_in(row, '[wc.]') >= want.quantity then
      if enough(counted_of(places_of(row, 1, #row, strict)), want) then return i, i end
    end
  end
end

-- The fewest neighbouring rows that have what is wanted.
local function rows_with(rows, want, strict)
  if count_in(table.concat(rows), 'w') < want.accessible.wheelchair then return end
  local sums = {{near = 0, next_to = 0, w = 0, c = 0, o = 0}}
  for i, row in ipairs(rows) do
    local has = {near = 0, next_to = 0, w = 0, c = 0, o = 0}
    if string.find(row, 'w', 1, true) then
      has = counted_of(places_of(row, 1, #row, strict))
    else
      has.c, has.o = count_in(row, 'c'), count_in(row, '%.')
    end
    for _, kind in ipairs(KINDS) do has[kind] = has[kind] + sums[i][kind] end
    sums[i + 1] = has
  end
  return smallest(#rows, function(from, upto)
    local has = {}
    for _, kind in ipairs(KINDS) do has[kind] = sums[upto + 1][kind] - sums[from][kind] end
    return enough(has, want)
  end)
end

-- What these rows have by kind, each place as an index of the block's marks; of one row within as few seats as can be.
local function places_in(rows, first, last, want, width, strict)
  local from, upto = 1, width - 1
  if first == last then
    from, upto = smallest(upto, function(a, b) return enough(counted_of(places_of(rows[first], a, b, strict)), want) end)
  end
  local found = {near = {}, next_to = {}, w = {}, c = {}, o = {}}
  for i = first, last do
    local here = places_of(rows[i], from, upto, strict)
    for _, kind in ipairs(KINDS) do
      for _, place in ipairs(here[kind]) do
        for n, at in ipairs(place) do place[n] = (i - 1) * width + at end
        table.insert(found[kind], place)
      end
    end
  end
  return found
end

-- The places to hold of those found, which are enough.
local function chosen(found, want, width)
  local need, taken = want.accessible, {}
  local wheelchairs, companions, others = need.wheelchair, need.companions, want.quantity - need.wheelchair - need.companions
  local function take(at) taken[#taken + 1] = at end
  for _, kind in ipairs({'near', 'next_to'}) do
    for _, pair in ipairs(found[kind]) do
      if wheelchairs > 0 and companions > 0 then
        take(pair[1])
        take(pair[2])
        wheelchairs, companions = wheelchairs - 1, companions - 1
      else
        table.insert(found.w, {pair[1]})
        table.insert(found[kind == 'near' and 'c' or 'o'], {pair[2]})
      end
    end
  end
  for i = 1, wheelchairs do take(found.w[i][1]) end
  local middle = taken[1] % width
  local function nearer(a, b)
    local one, other = math.abs(a[1] % width - middle), math.abs(b[1] % width - middle)
    return one < other or (one == other and a[1] < b[1])
  end
  table.sort(found.o, nearer)
  table.sort(found.c, nearer)
  local ordinary = need.strict and 0 or math.min(companions, #found.o - others)
  for i = 1, others + ordinary do take(found.o[i][1]) end
  for i = 1, companions - ordinary do take(found.c[i][1]) end
  return taken
end

-- The selection in a block, in one row or in more; or nil.
local function accessible_in(block, rows, want, find)
  for _, strict in ipairs(want.accessible.strict and {true} or {true, false}) do
    local first, last = find(rows, want, strict)
    if first then
      local places = chosen(places_in(rows, first, last, want, block[4], strict), want, block[4])
      table.sort(places)
      for i, at in ipairs(places) do places[i] = text(block[2] + at - 1) end
      return block[1] .. ':' .. table.concat(places, ',')
    end
  end
end

-- A selection of places for wheelchair users; else nil, and how many wheelchair and companion places are left there.
local function best_accessible(want)
  local rows, free = {}, {w = 0, c = 0}
  for _, find in ipairs({row_with, rows_with}) do
    for i, block in ipairs(want.price_blocks) do
      local found
      rows[i] = rows[i] or (block[4] and kinds(block, want)) or {}
      if lost then return end
      if block[4] then
        found = accessible_in(block, rows[i], want, find)
      elseif not want.avoid[1][block[1]] and available(block[1]) >= want.quantity then
        found = block[1] .. '*' .. want.quantity
      end
      if found then return found end
    end
  end
  for i, block in ipairs(want.price_blocks) do
    local all = table.concat(rows[i])
    free.w = free.w + (block[4] and count_in(all, 'w') or math.max(0, available(block[1])))
    free.c = free.c + count_in(all, 'c')
  end
  return nil, text(free.w) .. ',' .. text(free.c)
end
