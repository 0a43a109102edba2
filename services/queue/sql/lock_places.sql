-- Takes live places in key order, so that claiming, leaving and ending one place take turns. Decided on by the next
-- statement, which sees what the one before us did.
SELECT lane, join_seq FROM queue.place
WHERE event_id = :event_id AND epoch = :epoch AND ended_at IS NULL
  AND (lane, join_seq) IN (SELECT * FROM unnest(CAST(:lanes AS int[]), CAST(:join_seqs AS bigint[])))
ORDER BY lane, join_seq
FOR UPDATE
