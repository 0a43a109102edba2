-- Saves each lane's head and totals of calls; no value ever decreases.
UPDATE queue.lane l
SET head_seq = greatest(l.head_seq, h.head_seq), calls = greatest(l.calls, h.calls),
    contended_calls = greatest(l.contended_calls, h.contended_calls), fair_share = greatest(l.fair_share, h.fair_share),
    contention_periods = greatest(l.contention_periods, h.contention_periods)
FROM unnest(CAST(:lanes AS int[]), CAST(:head_seqs AS bigint[]), CAST(:calls AS bigint[]),
            CAST(:contended_calls AS bigint[]), CAST(:fair_shares AS float8[]), CAST(:contention_periods AS bigint[]))
     AS h (lane, head_seq, calls, contended_calls, fair_share, contention_periods)
WHERE l.event_id = :event_id AND l.epoch = :epoch AND l.lane = h.lane
  AND (l.head_seq < h.head_seq OR l.calls < h.calls)
