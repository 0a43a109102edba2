-- Records heartbeats: sets each place's bit in the current liveness window. Numbers that were never allocated are
-- ignored, so that no caller can inflate a bitmap. Idempotent. Answers 'ok', 'not-ready' or 'stale-epoch'.
-- KEYS[1] room hash the room
-- KEYS[2] alive_0 bitmap heartbeats, window slot 0
-- KEYS[3] alive_1 bitmap heartbeats, window slot 1
-- KEYS[4] alive_2 bitmap heartbeats, window slot 2
-- ARGV[1] epoch int the epoch of the numbers
-- ARGV[2] lane int their lane
-- ARGV[3] clock_offset_ms int added to Redis' clock; 0 outside tests
-- ARGV[4+] join_seqs list places with a heartbeat, at most 4096
local room, lane = KEYS[1], ARGV[2]
if #ARGV > 3 + 4096 then return redis.error_reply('too many numbers') end
local r = redis.call('HMGET', room, 'ready', 'epoch', 'last_ms', 'liveness_window_ms', 'window:' .. lane,
  'join_seq:' .. lane)
if r[1] ~= '1' then return 'not-ready' end
if r[2] ~= ARGV[1] then return 'stale-epoch' end
if redis.call('EXISTS', unpack(KEYS)) < #KEYS then return 'not-ready' end
local time = redis.call('TIME')
local now = math.max(time[1] * 1000 + math.floor(time[2] / 1000) + ARGV[3], tonumber(r[3]) or 0)

local window, last_window, tail = math.floor(now / r[4]), tonumber(r[5]) or 0, tonumber(r[6]) or 0
for w = math.max(last_window + 1, window - 2), window do redis.call('SET', KEYS[2 + w % 3], MARKED) end
if window > last_window then redis.call('HSET', room, 'window:' .. lane, window) end
local alive = KEYS[2 + window % 3]
for i = 4, #ARGV do
  local n = tonumber(ARGV[i])
  if n >= 1 and n <= tail then redis.call('SETBIT', alive, n, 1) end
end
return 'ok'
