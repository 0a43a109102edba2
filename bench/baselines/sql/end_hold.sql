WITH ended AS (
    UPDATE textbook.hold SET ended_at = clock_timestamp() WHERE hold_id = $1 AND ended_at IS NULL
    RETURNING section_id, quantity
)
UPDATE textbook.section s SET seats_remaining = seats_remaining + ended.quantity
FROM ended WHERE s.section_id = ended.section_id
