-- Sets positions and counts as in PostgreSQL; `expected` guards a position against a change since it was read.
-- KEYS[1] meta hash readiness
-- KEYS[2] counts hash per section
-- KEYS[3] dirty set sections changed
-- KEYS[4] map prefix of the sections' maps
-- ARGV[1+] places list section_id, position, expected mark or *, mark; or section_id, count, mark, change
-- Answers how many changed, or not-ready.
if not is_ready(keys.meta, keys.counts) then return 'not-ready' end
local changed = 0
for i = 1, #ARGV, 4 do
  local section, position, expected, mark = ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3]
  if position == 'count' then
    redis.call('HINCRBY', keys.counts, section .. ':' .. NAMES[expected], mark)
    touch(section)
    changed = changed + 1
  else
    local old = marks({section, tonumber(position), 1})
    if old ~= mark and (expected == '*' or expected == old) then
      set_mark(section, position, mark)
      changed = changed + 1
    end
  end
end
return changed
