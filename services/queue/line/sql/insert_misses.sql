-- Records missed calls of live places. A call that was claimed in the database stays claimed.
INSERT INTO queue.admission (event_id, epoch, lane, join_seq, call, state, deadline_ms)
SELECT :event_id, :epoch, c.lane, c.join_seq, c.call, 'missed', c.at_ms
FROM (SELECT CAST(:event_id AS text) AS event_id, CAST(:epoch AS int) AS epoch, n.*
      FROM unnest(CAST(:lanes AS int[]), CAST(:join_seqs AS bigint[]), CAST(:calls AS int[]), CAST(:ats_ms AS bigint[]))
          AS n (lane, join_seq, call, at_ms) OFFSET 0) AS c
JOIN queue.place p USING (event_id, epoch, lane, join_seq)
WHERE p.end_reason IS NULL
ORDER BY c.lane, c.join_seq, c.call
ON CONFLICT (event_id, epoch, lane, join_seq, call) DO UPDATE SET state = 'missed'
WHERE admission.state = 'called'
RETURNING lane, join_seq, call
