-- Of every place with a call that has not ended, the last such call. `ended_places` tells whether the place itself has:
-- a join with the line would read all of it once more.
SELECT DISTINCT ON (lane, join_seq) lane, join_seq, call, state, deadline_ms, expires_at_ms
FROM queue.admission
WHERE event_id = :event_id AND epoch = :epoch AND state <> 'ended'
ORDER BY lane, join_seq, call DESC
