-- Places an operator blocked or put on sale again, as the ledger has them at `version`; all of them in one step.
-- A place that a hold took meanwhile is blocked all the same: the ledger will refuse that hold.
-- KEYS[1] meta hash readiness, version of the stock
-- KEYS[2] counts hash per section
-- KEYS[3] dirty set sections changed
-- KEYS[4] map prefix of the sections' maps
-- ARGV[1] version int of the event when the ledger was read
-- ARGV[2] blocked text basket of seats that are not for sale
-- ARGV[3] free text basket of seats that are for sale
-- ARGV[4+] ga list section_id, how many of its places are blocked
-- Answers done, late (something newer was said already: read the ledger again) or not-ready.
local keys = {meta = KEYS[1], counts = KEYS[2], dirty = KEYS[3], map = KEYS[4]}
local version, blocked, free = tonumber(ARGV[1]), ARGV[2], ARGV[3]
if not is_ready(keys.meta, keys.counts) then return 'not-ready' end
if tonumber(redis.call('HGET', keys.meta, 'stock_version') or 0) > version then return 'late' end
redis.call('HSET', keys.meta, 'stock_version', text(version))
for _, run in ipairs(lines(blocked)) do
  local now = marks(keys, run)
  if #now < run[3] then return 'not-ready' end
  for mark in string.gmatch('.hs', '.') do
    local _, n = string.gsub(now, '[' .. mark .. ']', '')
    if n > 0 then count(keys, run[1], mark, 'x', n) end
  end
  redis.call('SETRANGE', keys.map .. run[1], run[2], string.rep('x', run[3]))
end
move(keys, lines(free), {}, 'x', '.')
for i = 4, #ARGV, 2 do
  local section, wanted = ARGV[i], tonumber(ARGV[i + 1])
  local more = wanted - tonumber(redis.call('HGET', keys.counts, section .. ':blocked') or 0)
  if more ~= 0 then count(keys, section, '.', 'x', more) end
end
return 'done'
