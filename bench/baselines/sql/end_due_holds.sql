WITH due AS (
    SELECT hold_id FROM textbook.hold WHERE ended_at IS NULL AND held_until <= now()
    ORDER BY held_until LIMIT $1 FOR UPDATE SKIP LOCKED
), ended AS (
    UPDATE textbook.hold h SET ended_at = clock_timestamp() FROM due WHERE h.hold_id = due.hold_id
    RETURNING h.section_id, h.quantity
), back AS (
    UPDATE textbook.section s SET seats_remaining = seats_remaining + b.n
    FROM (SELECT section_id, sum(quantity) AS n FROM ended GROUP BY section_id) AS b WHERE s.section_id = b.section_id
)
SELECT count(*) FROM ended
