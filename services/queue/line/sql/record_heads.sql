-- Writes how far each lane has come and what it was given of the calls; none of it ever goes back.
UPDATE queue.lane l
SET head_seq = greatest(l.head_seq, h.head_seq), calls = greatest(l.calls, h.calls),
    contested = greatest(l.contested, h.contested), due = greatest(l.due, h.due),
    contests = greatest(l.contests, h.contests)
FROM unnest(CAST(:lanes AS int[]), CAST(:head_seqs AS bigint[]), CAST(:calls AS bigint[]),
            CAST(:contested AS bigint[]), CAST(:dues AS float8[]), CAST(:contests AS bigint[]))
     AS h (lane, head_seq, calls, contested, due, contests)
WHERE l.event_id = :event_id AND l.epoch = :epoch AND l.lane = h.lane
  AND (l.head_seq < h.head_seq OR l.calls < h.calls)
