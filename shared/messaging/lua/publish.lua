-- Publishes a frame: appends it to the short log of its channel and sends it to all subscribers, in one step.
-- KEYS[1] log stream the latest frames of the channel: version, frame
-- ARGV[1] channel text in the log's slot
-- ARGV[2] version int of the frame
-- ARGV[3] frame json one object
-- ARGV[4] kept_max int frames in the log
-- ARGV[5] kept_s int the log expires this long after the last frame
-- ARGV[6] sharded int 1 to publish to the channel's shard as well
-- Returns the number of subscribers that received it.
local log, channel, version, frame = KEYS[1], ARGV[1], ARGV[2], ARGV[3]
local kept_max, kept_s, sharded = ARGV[4], ARGV[5], ARGV[6] == '1'
local last = redis.call('XREVRANGE', log, '+', '-', 'COUNT', 1)[1]
if last then frame = string.sub(frame, 1, -2) .. ',"after":' .. last[2][2] .. '}' end
redis.call('XADD', log, 'MAXLEN', kept_max, '*', 'version', version, 'frame', frame)
redis.call('EXPIRE', log, kept_s)
local receivers = redis.call('PUBLISH', channel, frame)
if sharded then receivers = receivers + redis.call('SPUBLISH', channel, frame) end
return receivers
