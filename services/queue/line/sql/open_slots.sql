-- Places after a given one whose last call is standing or claimed, in key order: the slots that the database counts.
SELECT lane, join_seq FROM queue.admission
WHERE event_id = :event_id AND epoch = :epoch AND state IN ('called', 'claimed')
  AND (lane, join_seq) > (CAST(:lane AS int), CAST(:join_seq AS bigint))
ORDER BY lane, join_seq
LIMIT :slots_max
