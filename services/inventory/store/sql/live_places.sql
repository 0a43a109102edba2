-- Places of some reservations; GA tickets have position -1.
WITH requested AS MATERIALIZED (SELECT CAST(:event_id AS text) AS event_id, reservation_id
FROM unnest(CAST(:ids AS text[])) AS a (reservation_id))
SELECT reservation_id, section_id, position, 1 AS quantity
FROM inventory.reservation_seat JOIN requested USING (event_id, reservation_id)
UNION ALL SELECT reservation_id, section_id, -1, quantity
FROM inventory.reservation_ga JOIN requested USING (event_id, reservation_id)
