-- Gives sessions their length again, from now on, once each; their new ends. One that is about to end, or has ended, stays.
UPDATE queue.admission a
SET expires_at_ms = greatest(a.expires_at_ms, CAST(:until_ms AS bigint)), extended = true
FROM unnest(CAST(:lanes AS int[]), CAST(:join_seqs AS bigint[])) AS wanted (lane, join_seq)
JOIN queue.place p ON p.event_id = :event_id AND p.epoch = :epoch AND p.lane = wanted.lane AND p.join_seq = wanted.join_seq
WHERE a.event_id = :event_id AND a.epoch = :epoch AND a.lane = wanted.lane AND a.join_seq = wanted.join_seq
  AND a.state = 'claimed' AND NOT a.extended AND a.expires_at_ms > CAST(:expires_after_ms AS bigint) AND p.end_reason IS NULL
RETURNING a.lane, a.join_seq, a.expires_at_ms
