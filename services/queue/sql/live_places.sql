-- The live places of these holders.
SELECT holder, lane, join_seq FROM queue.place
WHERE event_id = :event_id AND epoch = :epoch AND holder = ANY(CAST(:holders AS text[])) AND ended_at IS NULL
