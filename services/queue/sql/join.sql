-- A batch of places under numbers the engine gave. Nothing is inserted when the engine was filled anew or the room was
-- reset since; a number or a holder that is there already is left alone.
INSERT INTO queue.place (event_id, epoch, lane, join_seq, holder, user_id)
SELECT :event_id, :epoch, :lane, n.join_seq, n.holder, n.user_id
FROM unnest(CAST(:join_seqs AS bigint[]), CAST(:holders AS text[]), CAST(:user_ids AS text[]))
     AS n (join_seq, holder, user_id)
WHERE EXISTS (SELECT FROM queue.room r WHERE r.event_id = :event_id AND r.epoch = :epoch AND r.fill = :fill)
ORDER BY n.join_seq
ON CONFLICT DO NOTHING
RETURNING join_seq
