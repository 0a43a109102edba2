-- Every place that was ever called, with its last call; and whether it has ended.
SELECT DISTINCT ON (a.lane, a.join_seq) a.lane, a.join_seq, a.call, a.state, a.deadline_ms, a.expires_at_ms,
       p.ended_at IS NOT NULL AS over
FROM queue.admission a
JOIN queue.place p USING (event_id, epoch, lane, join_seq)
WHERE a.event_id = :event_id AND a.epoch = :epoch
ORDER BY a.lane, a.join_seq, a.call DESC
