-- The place of each of these signed-in fans: the live one, else the one that ended last.
SELECT DISTINCT ON (holder) holder, lane, join_seq FROM queue.place
WHERE event_id = :event_id AND epoch = :epoch AND holder = ANY(CAST(:holders AS text[])) AND left(holder, 5) = 'user.'
ORDER BY holder, ended_at DESC NULLS FIRST
