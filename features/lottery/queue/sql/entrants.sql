-- The holders of a range of a lane's entry numbers, in order, including those who left later.
SELECT join_seq, holder FROM queue.place
WHERE event_id = :event_id AND epoch = :epoch AND lane = :lane AND join_seq BETWEEN :first AND :last
ORDER BY join_seq
