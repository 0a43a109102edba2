-- Forgets changes that are in the ledger, by their number: later ones of another gatekeeper stay.
-- Answers how many, or 'not-ready' when the engine was filled anew since.
-- KEYS[1] room hash the room
-- KEYS[2] unwritten zset number -> change
-- ARGV[1] fill int the filling of the engine the changes came from
-- ARGV[2] up_to int the highest number that is in the ledger
if redis.call('HGET', KEYS[1], 'fill') ~= ARGV[1] then return 'not-ready' end
return redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', ARGV[2])
