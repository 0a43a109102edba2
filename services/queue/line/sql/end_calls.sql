-- Ends whatever calls these places still have open.
UPDATE queue.admission a SET state = 'ended'
FROM (SELECT CAST(:event_id AS text) AS event_id, CAST(:epoch AS int) AS epoch, n.*
      FROM unnest(CAST(:lanes AS int[]), CAST(:join_seqs AS bigint[])) AS n (lane, join_seq) OFFSET 0) AS asked
WHERE a.event_id = asked.event_id AND a.epoch = asked.epoch AND a.lane = asked.lane AND a.join_seq = asked.join_seq
  AND a.state IN ('called', 'claimed')
