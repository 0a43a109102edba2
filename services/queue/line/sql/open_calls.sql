-- The last call of every place that has one, but for those that releases before 0.2 marked as ended. Whether the place itself has ended comes from
-- `ended_places`: a join with all places would read them a second time.
SELECT DISTINCT ON (lane, join_seq) lane, join_seq, call, state, deadline_ms, expires_at_ms
FROM queue.admission
WHERE event_id = :event_id AND epoch = :epoch AND state <> 'ended'
ORDER BY lane, join_seq, call DESC
