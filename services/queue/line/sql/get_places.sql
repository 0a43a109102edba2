-- Places with their holder, the reason they ended and their last call.
SELECT p.lane, p.join_seq, p.holder, p.end_reason,
    a.call, a.state, a.deadline_ms, a.jti, a.expires_at_ms, coalesce(a.extended, false) AS extended
FROM (SELECT CAST(:event_id AS text) AS event_id, CAST(:epoch AS int) AS epoch, n.*
      FROM unnest(CAST(:lanes AS int[]), CAST(:join_seqs AS bigint[])) AS n (lane, join_seq) OFFSET 0) AS wanted
JOIN queue.place p USING (event_id, epoch, lane, join_seq)
LEFT JOIN LATERAL (
    SELECT * FROM queue.admission a
    WHERE a.event_id = p.event_id AND a.epoch = p.epoch AND a.lane = p.lane AND a.join_seq = p.join_seq
    ORDER BY a.call DESC LIMIT 1
) a ON true
