-- Inserts a batch of places under the numbers that Redis gave, from $4 on, and their event. Nothing is inserted if
-- Redis was rebuilt, the room reset or the lane removed since. A number or a holder that exists already is skipped;
-- then the caller writes the event, as it must name those that were inserted.
-- $1 event_id, $2 epoch, $3 lane, $4 first number, $5 holders, $6 user ids, $7 generation,
-- $8 the event if all are inserted
WITH placed AS (
    INSERT INTO queue.place (event_id, epoch, lane, join_seq, holder, user_id)
    SELECT $1::text, $2::int, $3::smallint, $4::bigint + n.at - 1, n.holder, n.user_id
    FROM unnest($5::text[], $6::text[]) WITH ORDINALITY AS n (holder, user_id, at)
    WHERE EXISTS (SELECT FROM queue.room r WHERE r.event_id = $1 AND r.epoch = $2 AND r.generation = $7::bigint)
      AND EXISTS (SELECT FROM queue.lane l WHERE l.event_id = $1 AND l.epoch = $2 AND l.lane = $3)
    ORDER BY n.at
    ON CONFLICT DO NOTHING
    RETURNING join_seq
), event AS (
    INSERT INTO queue.outbox_batch (events)
    SELECT jsonb_build_array($8::text::jsonb) WHERE (SELECT count(*) FROM placed) = cardinality($5)
)
SELECT join_seq FROM placed
