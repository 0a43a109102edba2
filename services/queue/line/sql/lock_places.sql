-- Locks live places in key order, so that claiming, leaving and ending the same place happen one after another. The
-- next statement decides, because it sees what the previous holder of the lock wrote.
SELECT lane, join_seq
FROM queue.place p JOIN (SELECT CAST(:event_id AS text) AS event_id, CAST(:epoch AS int) AS epoch, n.*
    FROM unnest(CAST(:lanes AS int[]), CAST(:join_seqs AS bigint[])) AS n (lane, join_seq) OFFSET 0) AS wanted
    USING (event_id, epoch, lane, join_seq)
WHERE p.end_reason IS NULL
ORDER BY lane, join_seq
FOR UPDATE OF p
