-- Single seats: a choice of seats may leave an available one alone, without an available neighbour in its row. The better
-- choice is as many seats side by side, in the same row or else in the nearest one at the same price, that leave nobody
-- alone. `want` has the blocks of the chosen seats (as for best available), the runs that nobody is offered, and `refuse`.

local SEARCHES_MAX = 10  -- of one request; each looks at the rows of a block
local FREE = string.byte('.')

-- The chosen seats by row, in the order of their runs; nil if a seat is in no block.
local function by_row(runs, blocks)
  local rows = {}
  for _, run in ipairs(runs) do
    local block
    for _, each in ipairs(blocks) do
      if each[1] == run[1] and each[2] <= run[2] and run[2] <= each[3] then block = each end
    end
    if not block then return nil end
    local number = math.floor((run[2] - block[2]) / block[4])
    local row = rows[#rows]
    if not row or row.block ~= block or row.number ~= number then
      row = {block = block, number = number, first = block[2] + number * block[4], n = 0, runs = {}}
      rows[#rows + 1] = row
    end
    row.runs[#row.runs + 1] = {run[2] - row.first + 1, run[3]}
    row.n = row.n + run[3]
  end
  return rows
end

-- The seats of a row, counted from 1, that have no available neighbour once the chosen ones are taken. One beside a chosen
-- seat had one before.
local function left_alone(row)
  local now = marks({row.block[1], row.first, row.block[4] - 1})
  for _, run in ipairs(row.runs) do
    now = string.sub(now, 1, run[1] - 1) .. string.rep('h', run[2]) .. string.sub(now, run[1] + run[2])
  end
  local alone = {}
  local function look(at)
    local is_free = string.byte(now, at) == FREE and alone[#alone] ~= at
    if is_free and string.byte(now, at - 1) ~= FREE and string.byte(now, at + 1) ~= FREE then alone[#alone + 1] = at end
  end
  for _, run in ipairs(row.runs) do
    if run[1] > 1 then look(run[1] - 1) end
    look(run[1] + run[2])
  end
  return alone
end

-- Where the seats of a row are side by side and leave nobody alone: the number of the row and the first of them; nil if
-- there is no such place. A run of available seats has such a place if it is as long as they are, or longer by two. Rows in
-- `used` have other seats of this request.
local function nearest(row, used)
  local block, n = row.block, row.n
  local width, longer, exact = block[4], string.rep('.', n + 2), '%f[.]' .. string.rep('%.', n) .. '%f[^.]'
  local rows = math.floor((block[3] - block[2] + 1) / width) + 1
  for off = 0, rows - 1 do
    for _, number in ipairs(off == 0 and {row.number} or {row.number - off, row.number + off}) do
      if number >= 0 and number < rows and (off == 0 or not used[number]) then
        local at = string.sub(block.marks, number * width + 1, number * width + width - 1)
        if string.find(at, longer, 1, true) or string.find(at, exact) then
          return number, (in_row(at, 1, #at, n, true, row.runs[1][1]))
        end
      end
    end
  end
end

-- Whether these seats are among those that are offered: places for some fans only are not changed for others.
local function are_offered(row)
  local base = row.first - row.block[2]
  for _, run in ipairs(row.runs) do
    if string.find(string.sub(row.block.marks, base + run[1], base + run[1] + run[2] - 1), '[^.]') then return false end
  end
  return true
end

-- The seats that a choice leaves alone, and the better choice if there is one, both as text; nil if it leaves none.
local function leaves_alone(runs, want)
  local rows, left, leaving, moved = by_row(runs, want.blocks) or {}, {}, {}, false
  for _, row in ipairs(rows) do
    local block, alone = row.block, left_alone(row)
    block.used = block.used or {}
    block.used[row.number] = true
    if #alone > 0 then block.marks = block.marks or offered(block, want.avoid) end
    for _, at in ipairs(alone) do
      local position = row.first + at - 1
      if string.byte(block.marks, position - block[2] + 1) == FREE then
        left[#left + 1] = block[1] .. ':' .. text(position)
        if leaving[#leaving] ~= row then leaving[#leaving + 1] = row end
      end
    end
  end
  if #left == 0 or lost then return nil end
  for i = 1, math.min(#leaving, SEARCHES_MAX) do
    local row = leaving[i]
    local number, at = nil, nil
    if are_offered(row) then number, at = nearest(row, row.block.used) end
    if number then
      moved, row.block.used[number] = true, true
      row.first, row.runs = row.block[2] + number * row.block[4], {{at, row.n}}
    end
  end
  local better = {}
  for _, row in ipairs(moved and rows or {}) do better[#better + 1] = named(row.block[1], row.first, row.runs) end
  return table.concat(left, ';'), table.concat(better, ';')
end
