-- Takes live places in key order, so that claiming, leaving and ending one place take turns. Decided on by the next
-- statement, which sees what the one before us did.
SELECT lane, join_seq
FROM queue.place p JOIN (SELECT CAST(:event_id AS text) AS event_id, CAST(:epoch AS int) AS epoch, n.*
    FROM unnest(CAST(:lanes AS int[]), CAST(:join_seqs AS bigint[])) AS n (lane, join_seq) OFFSET 0) AS asked USING (event_id, epoch, lane, join_seq)
WHERE p.how IS NULL
ORDER BY lane, join_seq
FOR UPDATE OF p
