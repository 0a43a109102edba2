-- Who has an entry number of a lane, in order, from one number to another; those who left later included.
SELECT join_seq, holder FROM queue.place
WHERE event_id = :event_id AND epoch = :epoch AND lane = :lane AND join_seq BETWEEN :first AND :last
ORDER BY join_seq
