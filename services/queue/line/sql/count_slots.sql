-- How many live places have a standing or claimed call, of calls made since a time; and the time before which no call is open
-- any more, at least a minute ago, because a call is seen when its transaction commits. Each call's place is looked up by its key:
-- statistics of an earlier hour could have it join the whole line.
SELECT count(*) AS slots, least(min(a.called_at), clock_timestamp() - interval '1 minute') AS since
FROM queue.admission a
WHERE a.event_id = :event_id AND a.epoch = :epoch AND a.call > 0 AND a.called_at >= CAST(:since AS timestamptz)
  AND a.state IN ('called', 'claimed')
  AND EXISTS (SELECT FROM queue.place p
              WHERE (p.event_id, p.epoch, p.lane, p.join_seq) = (a.event_id, a.epoch, a.lane, a.join_seq)
                AND p.end_reason IS NULL
              OFFSET 0)
