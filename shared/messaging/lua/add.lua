-- Events are added to a stream, in order, all of them or none.
-- KEYS[1] stream stream of the event log
-- ARGV[1] length_max int about how many entries it keeps
-- ARGV[2+] bodies list events as JSON
-- Answers how many were added.
for i = 2, #ARGV do redis.call('XADD', KEYS[1], 'MAXLEN', '~', ARGV[1], '*', 'event', ARGV[i]) end
return #ARGV - 1
