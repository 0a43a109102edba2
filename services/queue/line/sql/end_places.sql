-- Ends places that the caller has locked. With `unclaimed` only those without a session, because a slot must not be
-- freed while its pass works. A place whose holder bought has `end_reason` completed, whatever the caller says.
UPDATE queue.place p
SET ended_at = clock_timestamp(), end_reason = CASE WHEN p.bought_at IS NULL THEN :end_reason ELSE 'completed' END
FROM (SELECT CAST(:event_id AS text) AS event_id, CAST(:epoch AS int) AS epoch, n.*
      FROM unnest(CAST(:lanes AS int[]), CAST(:join_seqs AS bigint[])) AS n (lane, join_seq) OFFSET 0) AS wanted
WHERE p.event_id = wanted.event_id AND p.epoch = wanted.epoch AND p.lane = wanted.lane AND p.join_seq = wanted.join_seq
  AND p.end_reason IS NULL
  AND NOT (CAST(:unclaimed AS boolean) AND EXISTS (
      SELECT FROM queue.admission a
      WHERE a.event_id = p.event_id AND a.epoch = p.epoch AND a.lane = p.lane AND a.join_seq = p.join_seq
        AND a.state = 'claimed' OFFSET 0))
RETURNING p.lane, p.join_seq, p.end_reason
