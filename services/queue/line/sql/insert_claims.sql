-- Records claims of live places. The first claim of a call fixes its pass; a repeated claim returns the same pass.
INSERT INTO queue.admission AS a (event_id, epoch, lane, join_seq, call, state, jti, expires_at_ms)
SELECT :event_id, :epoch, c.lane, c.join_seq, c.call, 'claimed', c.jti, c.expires_at_ms
FROM (SELECT CAST(:event_id AS text) AS event_id, CAST(:epoch AS int) AS epoch, n.*
      FROM unnest(CAST(:lanes AS int[]), CAST(:join_seqs AS bigint[]), CAST(:calls AS int[]), CAST(:jtis AS text[]),
                  CAST(:expires_at_ms AS bigint[])) AS n (lane, join_seq, call, jti, expires_at_ms) OFFSET 0) AS c
JOIN queue.place p USING (event_id, epoch, lane, join_seq)
WHERE p.end_reason IS NULL
  AND EXISTS (SELECT FROM queue.room r WHERE r.event_id = :event_id AND r.epoch = :epoch AND r.generation = :generation)
ORDER BY c.lane, c.join_seq, c.call
ON CONFLICT (event_id, epoch, lane, join_seq, call) DO UPDATE
SET state = 'claimed', jti = coalesce(a.jti, excluded.jti),
    expires_at_ms = coalesce(a.expires_at_ms, excluded.expires_at_ms)
WHERE a.state IN ('called', 'claimed')
RETURNING lane, join_seq, jti, expires_at_ms
