-- Lists holds past their deadline (grace included) by every clock. It changes nothing: PostgreSQL decides what they are.
-- KEYS[1] meta hash readiness, clock
-- KEYS[2] deadlines zset when a hold may be released
-- ARGV[1] clock_offset_ms int moves the clock
-- ARGV[2] count_max int most ids to answer
-- ARGV[3] others_ms int the time by the slower of the other clocks
-- Answers now_ms lowest id… or not-ready; `lowest` is the earliest deadline, `inf` without one.
if not is_ready(keys.meta, keys.deadlines) then return {'not-ready'} end
local now = math.min((clock(keys.meta, ARGV[1])), tonumber(ARGV[3]))
local lowest = redis.call('ZRANGE', keys.deadlines, 0, 0, 'WITHSCORES')[2]
return {text(now), lowest, unpack(redis.call('ZRANGEBYSCORE', keys.deadlines, '-inf', text(now), 'LIMIT', 0, tonumber(ARGV[2])))}
