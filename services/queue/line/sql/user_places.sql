-- The place of each of these signed-in fans: the live one, otherwise the one that ended last.
SELECT DISTINCT ON (holder) holder, lane, join_seq
FROM unnest(CAST(:holders AS text[])) AS n (name) CROSS JOIN LATERAL (
    SELECT holder, lane, join_seq, ended_at FROM queue.place
    WHERE event_id = :event_id AND epoch = :epoch AND holder = n.name AND left(holder, 5) = 'user.' OFFSET 0
) AS p
ORDER BY holder, ended_at DESC NULLS FIRST
