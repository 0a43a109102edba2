-- Live places after a given one with a standing or claimed call, of calls made since a time, in key order: the slots that the
-- database counts.
SELECT lane, join_seq
FROM (SELECT * FROM queue.admission
      WHERE event_id = :event_id AND epoch = :epoch AND call > 0 AND called_at >= CAST(:since AS timestamptz)
        AND state IN ('called', 'claimed')
        AND (lane, join_seq) > (CAST(:lane AS int), CAST(:join_seq AS bigint))
      OFFSET 0) AS a
JOIN queue.place p USING (event_id, epoch, lane, join_seq)
WHERE p.end_reason IS NULL
ORDER BY lane, join_seq
LIMIT :slots_max
