-- Makes the section counts of ended reservations available again, with release log rows. Sections are locked in key order;
-- `set_seat_status` follows with the seats. Each reservation is looked up by itself (`OFFSET 0` keeps it so): joined, the
-- planner may read every ticket of the event.
WITH requested AS MATERIALIZED (
    SELECT CAST(:event_id AS text) AS event_id, reservation_id FROM unnest(CAST(:ids AS text[])) AS a (reservation_id)
),
seats AS MATERIALIZED (
    SELECT own.* FROM requested CROSS JOIN LATERAL (
        SELECT event_id, section_id, position, reservation_id FROM inventory.reservation_seat AS s
        WHERE s.event_id = requested.event_id AND s.reservation_id = requested.reservation_id OFFSET 0
    ) AS own
),
tickets AS MATERIALIZED (
    SELECT own.* FROM requested CROSS JOIN LATERAL (
        SELECT event_id, section_id, quantity, reservation_id FROM inventory.reservation_ga AS g
        WHERE g.event_id = requested.event_id AND g.reservation_id = requested.reservation_id OFFSET 0
    ) AS own
),
places AS MATERIALIZED (
    SELECT section_id, sum(n) AS n FROM (
        SELECT section_id, count(*) AS n FROM seats GROUP BY section_id
        UNION ALL SELECT section_id, sum(quantity) FROM tickets GROUP BY section_id
    ) AS both_kinds GROUP BY section_id
),
locked_sections AS MATERIALIZED (
    SELECT s.section_id, places.n FROM inventory.section s JOIN places USING (section_id)
    WHERE s.event_id = :event_id ORDER BY s.section_id FOR UPDATE OF s
),
logged AS (
    INSERT INTO inventory.release_log (event_id, reservation_id, section_id, positions, ga_quantity, reason, late_ms)
    SELECT :event_id, reservation_id, l.section_id, l.positions, l.ga_quantity, :reason,
           greatest(0, CAST(:now_ms AS bigint) - r.reserved_until_ms - 1000 * e.grace_s)
    FROM (
        SELECT event_id, reservation_id, section_id, array_agg(position ORDER BY position) AS positions, 0 AS ga_quantity
        FROM seats GROUP BY event_id, reservation_id, section_id
        UNION ALL SELECT event_id, reservation_id, section_id, CAST('{}' AS int[]), quantity FROM tickets
    ) AS l
    JOIN inventory.reservation r USING (event_id, reservation_id)
    JOIN inventory.event e ON e.event_id = :event_id
)
UPDATE inventory.section s
SET seats_remaining = s.seats_remaining + CAST(locked_sections.n AS int), version = s.version + 1
FROM locked_sections WHERE s.event_id = :event_id AND s.section_id = locked_sections.section_id
