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
local lane = ARGV[2]
limit_list(4, 4096)
local reason = check_room(ARGV[1], 'liveness_window_ms', 'window:' .. lane, 'join_seq:' .. lane)
if reason then return reason end

local alive, tail = present_slot(lane, clock(ARGV[3]), {KEYS[2], KEYS[3], KEYS[4]}), number('join_seq:' .. lane)
for i = 4, #ARGV do
  local n = tonumber(ARGV[i])
  if n >= 1 and n <= tail then redis.call('SETBIT', alive, n, 1) end
end
return 'ok'
