-- Live places with a standing or claimed call: the slots by the database.
SELECT a.lane, a.join_seq
FROM (SELECT * FROM queue.admission WHERE event_id = :event_id AND epoch = :epoch OFFSET 0) AS a
JOIN queue.place p USING (event_id, epoch, lane, join_seq)
WHERE a.state IN ('called', 'claimed') AND p.end_reason IS NULL
