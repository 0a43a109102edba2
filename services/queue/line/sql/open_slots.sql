-- Live places after a given one with a standing or claimed call, of calls made since a time, in key order: the slots that the
-- database counts. Each call's place is looked up by its key, as in `count_slots`.
SELECT a.lane, a.join_seq
FROM (SELECT * FROM queue.admission
      WHERE event_id = :event_id AND epoch = :epoch AND call > 0 AND called_at >= CAST(:since AS timestamptz)
        AND state IN ('called', 'claimed')
        AND (lane, join_seq) > (CAST(:lane AS int), CAST(:join_seq AS bigint))
      OFFSET 0) AS a
WHERE EXISTS (SELECT FROM queue.place p
              WHERE (p.event_id, p.epoch, p.lane, p.join_seq) = (a.event_id, a.epoch, a.lane, a.join_seq)
                AND p.end_reason IS NULL
              OFFSET 0)
ORDER BY a.lane, a.join_seq
LIMIT :slots_max
