-- How many live places have a standing or claimed call, of calls made since a time; and the time before which no call is open
-- any more, at least a minute ago, because a call is seen when its transaction commits.
SELECT count(*) AS slots, least(min(a.called_at), clock_timestamp() - interval '1 minute') AS since
FROM (SELECT * FROM queue.admission
      WHERE event_id = :event_id AND epoch = :epoch AND call > 0 AND called_at >= CAST(:since AS timestamptz)
        AND state IN ('called', 'claimed')
      OFFSET 0) AS a
JOIN queue.place p USING (event_id, epoch, lane, join_seq)
WHERE p.end_reason IS NULL
