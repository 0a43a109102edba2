-- Deletes changes that are committed in the database, up to a number: later changes of another gatekeeper stay.
-- Answers how many were deleted, or 'not-ready' when Redis has been rebuilt since.
-- KEYS[1] room hash the room
-- KEYS[2] unwritten zset number -> change
-- ARGV[1] generation int number of the rebuild the changes came from
-- ARGV[2] up_to int the highest number that is in the database
if redis.call('HGET', KEYS[1], 'generation') ~= ARGV[1] then return 'not-ready' end
return redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', ARGV[2])
