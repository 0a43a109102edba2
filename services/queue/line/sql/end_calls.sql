-- Ends the open calls of these places.
UPDATE queue.admission a SET state = 'ended'
FROM (SELECT CAST(:event_id AS text) AS event_id, CAST(:epoch AS int) AS epoch, n.*
      FROM unnest(CAST(:lanes AS int[]), CAST(:join_seqs AS bigint[])) AS n (lane, join_seq) OFFSET 0) AS wanted
WHERE a.event_id = wanted.event_id AND a.epoch = wanted.epoch AND a.lane = wanted.lane AND a.join_seq = wanted.join_seq
  AND a.state IN ('called', 'claimed')
