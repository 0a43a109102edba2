-- Marks the held seats of these reservations as sold; locked in key order first.
WITH mine AS MATERIALIZED (
    SELECT x.event_id, x.section_id, x.position, x.reservation_id
    FROM inventory.reservation_seat x
    JOIN (SELECT CAST(:event_id AS text) AS event_id, reservation_id FROM unnest(CAST(:ids AS text[])) AS a (reservation_id)
          OFFSET 0) AS requested USING (event_id, reservation_id)
),
locked AS MATERIALIZED (
    SELECT s.event_id, s.section_id, s.position
    FROM inventory.seat s JOIN mine USING (event_id, section_id, position, reservation_id)
    WHERE s.status = 'held'
    ORDER BY s.section_id, s.position
    FOR UPDATE OF s
)
UPDATE inventory.seat s SET status = 'sold'
FROM locked WHERE s.event_id = locked.event_id AND s.section_id = locked.section_id AND s.position = locked.position
