-- Ends whatever calls these places still have open.
UPDATE queue.admission a SET state = 'ended'
WHERE a.event_id = :event_id AND a.epoch = :epoch AND a.state IN ('called', 'claimed')
  AND (a.lane, a.join_seq) IN (SELECT * FROM unnest(CAST(:lanes AS int[]), CAST(:join_seqs AS bigint[])))
