-- Places and price types of some reservations; GA tickets and types have position -1. Each reservation is looked up by itself
-- (`OFFSET 0` keeps it so), once for its seats and once for its tickets.
WITH requested AS MATERIALIZED (
    SELECT CAST(:event_id AS text) AS event_id, reservation_id FROM unnest(CAST(:ids AS text[])) AS a (reservation_id)
),
seats AS MATERIALIZED (
    SELECT requested.reservation_id, own.* FROM requested CROSS JOIN LATERAL (
        SELECT section_id, position, type_id FROM inventory.reservation_seat AS x
        WHERE x.event_id = requested.event_id AND x.reservation_id = requested.reservation_id OFFSET 0
    ) AS own
),
tickets AS MATERIALIZED (
    SELECT requested.reservation_id, own.* FROM requested CROSS JOIN LATERAL (
        SELECT section_id, quantity, type_id FROM inventory.reservation_ga AS g
        WHERE g.event_id = requested.event_id AND g.reservation_id = requested.reservation_id OFFSET 0
    ) AS own
)
SELECT reservation_id, section_id, position, 1 AS quantity FROM seats
UNION ALL SELECT reservation_id, section_id, -1, CAST(sum(quantity) AS int) FROM tickets GROUP BY 1, 2
UNION ALL SELECT reservation_id, '~' || type_id, -1, CAST(sum(n) AS int) FROM (
    SELECT reservation_id, type_id, 1 AS n FROM seats WHERE type_id <> ''
    UNION ALL SELECT reservation_id, type_id, quantity FROM tickets WHERE type_id <> ''
) AS types GROUP BY 1, 2
