-- Gives sessions their length again, from now on, once each; their new ends. One that is about to end, or has ended, stays.
UPDATE queue.admission a
SET expires_at_ms = greatest(a.expires_at_ms, CAST(:until_ms AS bigint)), extended = true
FROM (SELECT CAST(:event_id AS text) AS event_id, CAST(:epoch AS int) AS epoch, n.*
      FROM unnest(CAST(:lanes AS int[]), CAST(:join_seqs AS bigint[])) AS n (lane, join_seq) OFFSET 0) AS wanted
JOIN queue.place p USING (event_id, epoch, lane, join_seq)
WHERE a.event_id = wanted.event_id AND a.epoch = wanted.epoch AND a.lane = wanted.lane AND a.join_seq = wanted.join_seq
  AND a.state = 'claimed' AND NOT a.extended AND a.expires_at_ms > CAST(:expires_after_ms AS bigint) AND p.end_reason IS NULL
RETURNING a.lane, a.join_seq, a.expires_at_ms
