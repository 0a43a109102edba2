-- Finds places to call in the bitmaps of a lane; a part of tick.lua that touches only the keys of that lane.
local CHUNK_BYTES = 1024

-- Returns the first `want` places in [from, to] that are live and not taken or done, reading at most `bytes` bytes, and
-- the last place examined. `any`: all places are taken as live.
local function scan(lane, from, to, want, bytes, any)
  local found, at = {}, from
  while at <= to and bytes > 0 and #found < want do
    local first = math.floor(at / 8)
    local last = math.min(first + math.min(CHUNK_BYTES, bytes) - 1, math.floor(to / 8))
    bytes = bytes - (last - first + 1)
    local a = redis.call('GETRANGE', lane.alive[1], first, last)
    local b = redis.call('GETRANGE', lane.alive[2], first, last)
    local c = redis.call('GETRANGE', lane.alive[3], first, last)
    if any or string.find(a, '[^%z]') or string.find(b, '[^%z]') or string.find(c, '[^%z]') then
      local taken = redis.call('GETRANGE', lane.taken, first, last)
      local done = redis.call('GETRANGE', lane.done, first, last)
      for byte = first, last do
        local k = byte - first + 1
        local live = any and 255 or bit.bor(string.byte(a, k) or 0, string.byte(b, k) or 0, string.byte(c, k) or 0)
        live = bit.band(live, bit.bnot(bit.bor(string.byte(taken, k) or 0, string.byte(done, k) or 0)))
        if live ~= 0 then
          for seq = math.max(at, byte * 8, 1), math.min(to, byte * 8 + 7) do
            if bit.band(live, bit.lshift(1, 7 - seq % 8)) ~= 0 then
              found[#found + 1] = seq
              if #found == want then return found, seq end
            end
          end
        end
      end
    end
    at = (last + 1) * 8
  end
  return found, math.min(at - 1, to)
end

