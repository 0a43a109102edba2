-- Calls of places above their lane's head; where ranks are other numbers all calls, as they are computed elsewhere.
SELECT a.lane, a.join_seq, l.head_seq, p.holder
FROM (SELECT * FROM queue.admission WHERE event_id = :event_id AND epoch = :epoch OFFSET 0) AS a
JOIN queue.lane l USING (event_id, epoch, lane) LEFT JOIN queue.place p USING (event_id, epoch, lane, join_seq)
WHERE a.join_seq > l.head_seq OR :all_calls
