-- Places and price types of some reservations; GA tickets and types have position -1.
WITH requested AS MATERIALIZED (SELECT CAST(:event_id AS text) AS event_id, reservation_id
FROM unnest(CAST(:ids AS text[])) AS a (reservation_id))
SELECT reservation_id, section_id, position, 1 AS quantity
FROM inventory.reservation_seat JOIN requested USING (event_id, reservation_id)
UNION ALL SELECT reservation_id, section_id, -1, CAST(sum(quantity) AS int)
FROM inventory.reservation_ga JOIN requested USING (event_id, reservation_id) GROUP BY 1, 2
UNION ALL SELECT reservation_id, '~' || type_id, -1, CAST(sum(n) AS int) FROM (
    SELECT reservation_id, type_id, count(*) AS n
    FROM inventory.reservation_seat JOIN requested USING (event_id, reservation_id) WHERE type_id <> '' GROUP BY 1, 2
    UNION ALL SELECT reservation_id, type_id, sum(quantity)
    FROM inventory.reservation_ga JOIN requested USING (event_id, reservation_id) WHERE type_id <> '' GROUP BY 1, 2
) AS types GROUP BY 1, 2
