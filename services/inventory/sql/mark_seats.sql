-- Seats that these reservations hold change hands: freed (no owner) or sold; locked in key order first.
WITH locked AS MATERIALIZED (
    SELECT s.section_id, s.position
    FROM inventory.seat s
    JOIN inventory.reservation_seat x USING (event_id, section_id, position, reservation_id)
    WHERE s.event_id = :event_id AND x.reservation_id = ANY(CAST(:ids AS text[])) AND s.status = 'held'
    ORDER BY s.section_id, s.position
    FOR UPDATE OF s
)
UPDATE inventory.seat s
SET status = CAST(:mark AS text),
    reservation_id = CASE WHEN CAST(:mark AS text) = 'available' THEN NULL ELSE s.reservation_id END
FROM locked WHERE s.event_id = :event_id AND s.section_id = locked.section_id AND s.position = locked.position
