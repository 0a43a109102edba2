-- Every call of these events, and when its place ended, with which its calls end. $1 events
SELECT a.event_id, a.epoch, a.lane, a.join_seq, a.call,
    CASE WHEN p.ended_at IS NOT NULL AND a.state IN ('called', 'claimed') THEN 'ended' ELSE a.state END AS state, a.deadline_ms, a.jti, a.expires_at_ms,
    CAST(extract(epoch FROM p.ended_at) * 1000 AS bigint) AS ended_ms
FROM queue.admission a LEFT JOIN queue.place p USING (event_id, epoch, lane, join_seq)
WHERE a.event_id = ANY($1::text[])
ORDER BY a.event_id, a.epoch, a.lane, a.join_seq, a.call
