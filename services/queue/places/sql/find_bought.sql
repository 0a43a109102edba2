-- The live places of holders who bought, with their last call: by number where the purchase names it, otherwise by holder
-- alone, in the line of now.
SELECT bought.event_id, p.epoch, p.lane, p.join_seq, p.holder, p.end_reason,
       a.call, a.state, a.deadline_ms, a.jti, a.expires_at_ms, coalesce(a.extended, false) AS extended
FROM unnest(CAST(:event_ids AS text[]), CAST(:holders AS text[]), CAST(:epochs AS int[]), CAST(:lanes AS int[]),
            CAST(:join_seqs AS bigint[])) AS bought (event_id, holder, epoch, lane, join_seq)
CROSS JOIN LATERAL (
    SELECT p.* FROM queue.place p
    WHERE p.event_id = bought.event_id AND p.ended_at IS NULL AND p.holder = bought.holder
      AND p.epoch = coalesce(bought.epoch, (SELECT r.epoch FROM queue.room r WHERE r.event_id = bought.event_id))
      AND p.lane = coalesce(bought.lane, p.lane) AND p.join_seq = coalesce(nullif(bought.join_seq, 0), p.join_seq)
    OFFSET 0
) AS p
LEFT JOIN LATERAL (
    SELECT * FROM queue.admission a
    WHERE a.event_id = p.event_id AND a.epoch = p.epoch AND a.lane = p.lane AND a.join_seq = p.join_seq
    ORDER BY a.call DESC LIMIT 1
) AS a ON true
