-- How many of the :ahead places after the head are alive.
SELECT count(*) FROM queue.place
WHERE event_id = :event_id AND epoch = :epoch AND lane = :lane AND ended_at IS NULL
  AND join_seq > CAST(:head_seq AS bigint)
  AND join_seq <= CAST(:head_seq AS bigint) + CAST(:ahead AS bigint)
