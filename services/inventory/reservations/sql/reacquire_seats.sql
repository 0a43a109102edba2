-- Sells the seats of an ended reservation to it again, as far as they are available; the caller counts them.
WITH locked AS MATERIALIZED (
    SELECT s.section_id, s.position
    FROM inventory.seat s
    JOIN inventory.reservation_seat x USING (event_id, section_id, position)
    WHERE s.event_id = :event_id AND x.reservation_id = :reservation_id
    ORDER BY s.section_id, s.position
    FOR UPDATE OF s
)
UPDATE inventory.seat s SET status = 'sold', reservation_id = CAST(:reservation_id AS text)
FROM locked
WHERE s.event_id = :event_id AND s.section_id = locked.section_id AND s.position = locked.position
  AND s.status = 'available'
