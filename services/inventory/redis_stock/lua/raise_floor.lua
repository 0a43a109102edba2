-- Kills the passes of a line that was reset, in one step with `hold`. The floor only rises, also while a gate is filled.
-- KEYS[1] meta hash min_pass_epoch
-- ARGV[1] floor int epochs below it are over
-- Answers done.
if tonumber(redis.call('HGET', KEYS[1], 'min_pass_epoch') or 0) < tonumber(ARGV[1]) then
  redis.call('HSET', KEYS[1], 'min_pass_epoch', ARGV[1])
end
return 'done'
