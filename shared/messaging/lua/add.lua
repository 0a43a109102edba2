-- Appends events to a stream in order, all or none.
-- KEYS[1] stream stream of the event log
-- ARGV[1] length_max int approximate number of entries to keep
-- ARGV[2+] bodies list events as JSON
-- Returns the number appended.
for i = 2, #ARGV do redis.call('XADD', KEYS[1], 'MAXLEN', '~', ARGV[1], '*', 'event', ARGV[i]) end
return #ARGV - 1
