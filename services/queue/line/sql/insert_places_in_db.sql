-- Inserts a batch of places under the next numbers after the highest in the database and after the head, while Redis is
-- unavailable. The caller holds the lane's row lock, so two such batches never get the same numbers.
INSERT INTO queue.place (event_id, epoch, lane, join_seq, holder, user_id)
SELECT :event_id, :epoch, :lane, top.join_seq + n.at, n.holder, n.user_id
FROM unnest(CAST(:holders AS text[]), CAST(:user_ids AS text[])) WITH ORDINALITY AS n (holder, user_id, at),
     (SELECT greatest(l.head_seq, (
          SELECT max(join_seq) FROM queue.place WHERE event_id = :event_id AND epoch = :epoch AND lane = :lane
      )) AS join_seq
      FROM queue.lane l WHERE l.event_id = :event_id AND l.epoch = :epoch AND l.lane = :lane) AS top
ORDER BY n.at
ON CONFLICT DO NOTHING
RETURNING join_seq, holder
