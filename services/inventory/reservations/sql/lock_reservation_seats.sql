-- Locks the seats of some reservations in key order.
WITH mine AS MATERIALIZED (SELECT x.event_id, x.section_id, x.position FROM inventory.reservation_seat x
JOIN (SELECT CAST(:event_id AS text) AS event_id, a.* FROM unnest(CAST(:ids AS text[])) AS a (reservation_id)
OFFSET 0) AS requested USING (event_id, reservation_id))
SELECT section_id, position FROM inventory.seat s JOIN mine USING (event_id, section_id, position)
ORDER BY section_id, position FOR UPDATE OF s
