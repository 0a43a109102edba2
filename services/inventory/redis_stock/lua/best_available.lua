-- Best available: adjacent places, in the first price block that has them. A block is {section, first, last, width}:
-- neighbouring rows of one price in a section's map, each `width` apart; a GA section is {section}. Blocks come in the order
-- to try. `want.avoid` has one or more rounds, each by section the places that it does not offer, as runs `0-4,9-9`; a GA
-- section has any run. The next round is tried where the one before has no places.

-- The best position for `n` seats in one row: near the position `near` or its middle, with `tidy` leaving as few single
-- seats as possible. Also returns how many single seats it would leave.
local function in_row(marks, first, last, n, tidy, near)
  local want, middle = string.rep('.', n), near or (first + last - n + 1) / 2
  local best, best_singles, best_off
  for at = first, last - n + 1 do
    if string.sub(marks, at, at + n - 1) == want then
      local singles = 0
      local before, after = string.sub(marks, at - 2, at - 1), string.sub(marks, at + n, at + n + 1)
      if string.find(before, '^[^.]?%.$') then singles = singles + 1 end
      if string.find(after, '^%.[^.]?$') then singles = singles + 1 end
      local off = math.abs(at - middle)
      if not best or (tidy and singles < best_singles) or ((not tidy or singles == best_singles) and off < best_off) then
        best, best_singles, best_off = at, singles, off
      end
    end
  end
  return best, best_singles
end

-- `n` adjacent seats, in the first row that has them; with `tidy` a row where they would leave a single seat comes last.
local function together(marks, width, n, tidy)
  local want, left_over = string.rep('.', n), nil
  local at = string.find(marks, want, 1, true)
  while at do
    local first = math.floor((at - 1) / width) * width + 1
    local last = math.min(first + width - 2, #marks)
    local found, singles = in_row(marks, first, last, n, tidy)
    if found and (not tidy or singles == 0) then return found end
    left_over = left_over or found
    at = string.find(marks, want, last + 1, true)
  end
  return left_over
end

-- `n` seats in as few groups as possible: the longest run first (of equals the front one) until a run has room for the rest.
local function in_groups(marks, n)
  local runs, groups = {}, {}
  for at, run in string.gmatch(marks, '()(%.+)') do runs[#runs + 1] = {at, #run} end
  table.sort(runs, function(a, b) return a[2] > b[2] or (a[2] == b[2] and a[1] < b[1]) end)
  for i, run in ipairs(runs) do
    if run[2] >= n then  -- the shortest run with room for the rest, of equals the front one
      for j = i + 1, #runs do
        if runs[j][2] < n then break end
        if runs[j][2] < run[2] then run = runs[j] end
      end
      groups[#groups + 1] = {run[1], n}
      return groups
    end
    groups[#groups + 1] = {run[1], run[2]}
    n = n - run[2]
  end
end

local function longest_run(marks)
  local longest = 0
  for run in string.gmatch(marks, '%.+') do longest = math.max(longest, #run) end
  return longest
end

local function named(section, first, groups)
  local positions = {}
  for _, group in ipairs(groups) do
    for i = 0, group[2] - 1 do positions[#positions + 1] = first + group[1] - 1 + i end
  end
  table.sort(positions)
  return section .. ':' .. table.concat(positions, ',')
end

-- A section's runs {first, last} of a round, in order; read once.
local function runs_of(round, section)
  local runs = round[section]
  if type(runs) ~= 'string' then return runs end
  local found = {}
  for first, last in string.gmatch(runs, '(%d+)-(%d+)') do found[#found + 1] = {tonumber(first), tonumber(last)} end
  round[section] = found
  return found
end

local function hidden(part) return string.rep('-', #part) end

-- A block's marks after `change` of those of these runs; `all` begins at the block's first position.
local function marked(all, block, runs, change)
  if not runs then return all end
  local first, parts, at = block[2], {}, 1
  for _, run in ipairs(runs) do
    local from, upto = math.max(run[1] - first + 1, at), math.min(run[2] - first + 1, #all)
    if run[1] > block[3] then break end
    if from <= upto then
      parts[#parts + 1] = string.sub(all, at, from - 1)
      parts[#parts + 1] = change(string.sub(all, from, upto))
      at = upto + 1
    end
  end
  parts[#parts + 1] = string.sub(all, at)
  return table.concat(parts)
end

-- A block's marks as they are offered in a round; made once.
local function offered(block, round)
  block.offered = block.offered or {}
  if not block.offered[round] then
    local all = marks({block[1], block[2], block[3] - block[2] + 1})
    block.offered[round] = marked(all, block, runs_of(round, block[1]), hidden)
  end
  return block.offered[round]
end

-- How many places of a block are free. A whole section is counted already; its map is read for a part of it.
local function free_in(block, round)
  local section, first, last, width = block[1], block[2], block[3], block[4]
  local free = math.max(0, available(section))
  if not width then return round[section] and 0 or free end
  local whole = not round[section] and first == 0 and redis.call('STRLEN', keys.map .. section) == last + 1
  if free == 0 or whole then return free end
  return select(2, string.gsub(offered(block, round), '%.', ''))
end

-- Why no block could give the wanted places: how many are left by block, and the longest run of all where one block has as
-- many as are wanted.
local function left_of(want)
  local left, free, widest = {}, {}, nil
  local round = want.avoid[#want.avoid]
  for i, block in ipairs(want.price_blocks) do
    free[i] = free_in(block, round)
    left[i] = block[1] .. '*' .. text(free[i])
    if free[i] >= want.quantity then widest = 0 end
  end
  for i, block in ipairs(widest and want.price_blocks or {}) do
    if block[4] and free[i] > widest then
      widest = math.max(widest, longest_run(offered(block, round)))
    end
  end
  return left, widest
end

-- A selection of `want.quantity` places in one round, or nil.
local function best_in(want, round)
  local n = want.quantity
  for _, split in ipairs(want.split and {false, true} or {false}) do
    for _, block in ipairs(want.price_blocks) do
      local section, first, width = block[1], block[2], block[4]
      if not width then
        if not round[section] and available(section) >= n then return section .. '*' .. n end
      elseif available(section) >= n then
        local marks = offered(block, round)
        if split then
          local groups = in_groups(marks, n)
          if groups then return named(section, first, groups) end
        else
          local at = together(marks, width, n, want.tidy)
          if at then return named(section, first, {{at, n}}) end
        end
      end
    end
  end
end

-- A selection of `want.quantity` places, or nil.
local function best(want)
  for _, round in ipairs(want.avoid) do
    local found = best_in(want, round)
    if found or lost then return found end
  end
end
