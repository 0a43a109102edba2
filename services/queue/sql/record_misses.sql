-- Writes missed calls. A call only rises: one that was claimed in the ledger stays claimed.
INSERT INTO queue.admission (event_id, epoch, lane, join_seq, call, state, deadline_ms)
SELECT :event_id, :epoch, c.lane, c.join_seq, c.call, 'missed', c.at_ms
FROM unnest(CAST(:lanes AS int[]), CAST(:join_seqs AS bigint[]), CAST(:calls AS int[]), CAST(:ats_ms AS bigint[]))
     AS c (lane, join_seq, call, at_ms)
JOIN queue.place p ON p.event_id = :event_id AND p.epoch = :epoch AND p.lane = c.lane AND p.join_seq = c.join_seq
ORDER BY c.lane, c.join_seq, c.call
ON CONFLICT (event_id, epoch, lane, join_seq, call) DO UPDATE SET state = 'missed'
WHERE admission.state = 'called'
RETURNING lane, join_seq, call
