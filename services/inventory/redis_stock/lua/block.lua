-- Follows PostgreSQL: places that an operator blocked or unblocked, as of `version`, in one step. A seat that was held
-- meanwhile is blocked all the same, because PostgreSQL will refuse that hold.
-- KEYS[1] meta hash readiness, version of the stock
-- KEYS[2] counts hash per section
-- KEYS[3] dirty set sections changed
-- KEYS[4] map prefix of the sections' maps
-- ARGV[1] version int of the event when PostgreSQL was read
-- ARGV[2] blocked text selection of seats that are blocked
-- ARGV[3] free text selection of seats that are available
-- ARGV[4+] ga list section_id, how many of its places are blocked
-- Answers done, stale (Redis has a newer version: read PostgreSQL again) or not-ready.
local version, blocked, free = tonumber(ARGV[1]), ARGV[2], ARGV[3]
if not is_ready(keys.meta, keys.counts) then return 'not-ready' end
if tonumber(redis.call('HGET', keys.meta, 'stock_version') or 0) > version then return 'stale' end
redis.call('HSET', keys.meta, 'stock_version', text(version))
for _, run in ipairs(parse(blocked)) do
  local now = marks(run)
  if #now < run[3] then return 'not-ready' end
  for mark in string.gmatch('.hs', '.') do
    local _, n = string.gsub(now, '[' .. mark .. ']', '')
    if n > 0 then count(run[1], mark, 'x', n) end
  end
  redis.call('SETRANGE', keys.map .. run[1], run[2], string.rep('x', run[3]))
end
set_marks(parse(free), {}, 'x', '.')
for i = 4, #ARGV, 2 do
  local section, wanted = ARGV[i], tonumber(ARGV[i + 1])
  local added = wanted - tonumber(redis.call('HGET', keys.counts, section .. ':blocked') or 0)
  if added ~= 0 then count(section, '.', 'x', added) end
end
return 'done'
