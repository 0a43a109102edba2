-- The head of each lane, and its highest number that was committed or passed over: a number at or below the head would
-- wait behind everybody.
SELECT l.lane, l.head_seq, greatest(l.head_seq, p.join_seq) AS tail_seq
FROM queue.lane l
LEFT JOIN LATERAL (
    SELECT join_seq FROM queue.place p
    WHERE p.event_id = l.event_id AND p.epoch = l.epoch AND p.lane = l.lane
    ORDER BY join_seq DESC LIMIT 1
) p ON true
WHERE l.event_id = :event_id AND l.epoch = :epoch
ORDER BY l.lane
