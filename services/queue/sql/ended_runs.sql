-- Ended places as runs of neighbouring numbers.
SELECT lane, min(join_seq) AS first, max(join_seq) AS last
FROM (SELECT lane, join_seq, join_seq - row_number() OVER (PARTITION BY lane ORDER BY join_seq) AS run
      FROM queue.place WHERE event_id = :event_id AND epoch = :epoch AND ended_at IS NOT NULL) AS ended
GROUP BY lane, run
