-- Invalidates the passes of earlier epochs after a reset of the waiting room. The epoch only rises, also during a rebuild.
-- KEYS[1] meta hash min_pass_epoch
-- ARGV[1] min_epoch int passes of lower epochs are invalid
-- Answers done.
if tonumber(redis.call('HGET', keys.meta, 'min_pass_epoch') or 0) < tonumber(ARGV[1]) then
  redis.call('HSET', keys.meta, 'min_pass_epoch', ARGV[1])
end
return 'done'
