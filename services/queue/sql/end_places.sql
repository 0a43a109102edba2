-- Ends places the caller has locked. With `unclaimed` only those without a session: a freed slot never leaves a working
-- pass. `how` gives way to a purchase.
UPDATE queue.place p SET ended_at = clock_timestamp(), how = CASE WHEN p.bought_at IS NULL THEN :how ELSE 'completed' END
WHERE p.event_id = :event_id AND p.epoch = :epoch AND p.ended_at IS NULL
  AND (p.lane, p.join_seq) IN (SELECT * FROM unnest(CAST(:lanes AS int[]), CAST(:join_seqs AS bigint[])))
  AND NOT (CAST(:unclaimed AS boolean) AND EXISTS (
      SELECT FROM queue.admission a
      WHERE a.event_id = p.event_id AND a.epoch = p.epoch AND a.lane = p.lane AND a.join_seq = p.join_seq
        AND a.state = 'claimed'))
RETURNING p.lane, p.join_seq, p.how
