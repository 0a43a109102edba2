-- The live places of these holders.
SELECT holder, lane, join_seq
FROM unnest(CAST(:holders AS text[])) AS n (name) CROSS JOIN LATERAL (
    SELECT holder, lane, join_seq, ended_at FROM queue.place
    WHERE event_id = :event_id AND epoch = :epoch AND holder = n.name AND ended_at IS NULL OFFSET 0
) AS p
