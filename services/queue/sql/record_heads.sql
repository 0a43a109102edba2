-- Writes how far each lane has come; a head never goes back.
UPDATE queue.lane l SET head_seq = greatest(l.head_seq, h.head_seq)
FROM unnest(CAST(:lanes AS int[]), CAST(:head_seqs AS bigint[])) AS h (lane, head_seq)
WHERE l.event_id = :event_id AND l.epoch = :epoch AND l.lane = h.lane AND l.head_seq < h.head_seq
