-- Ends places the caller has locked. With `unclaimed` only those without a session: a freed slot never leaves a working
-- pass. `how` gives way to a purchase.
UPDATE queue.place p SET ended_at = clock_timestamp(), how = CASE WHEN p.bought_at IS NULL THEN :how ELSE 'completed' END
FROM (SELECT CAST(:event_id AS text) AS event_id, CAST(:epoch AS int) AS epoch, n.*
      FROM unnest(CAST(:lanes AS int[]), CAST(:join_seqs AS bigint[])) AS n (lane, join_seq) OFFSET 0) AS asked
WHERE p.event_id = asked.event_id AND p.epoch = asked.epoch AND p.lane = asked.lane AND p.join_seq = asked.join_seq
  AND p.how IS NULL
  AND NOT (CAST(:unclaimed AS boolean) AND EXISTS (
      SELECT FROM queue.admission a
      WHERE a.event_id = p.event_id AND a.epoch = p.epoch AND a.lane = p.lane AND a.join_seq = p.join_seq
        AND a.state = 'claimed' OFFSET 0))
RETURNING p.lane, p.join_seq, p.how
