-- Makes the places and price types of ended reservations available again, with release log rows and one event for each way they ended. Sections
-- are locked first, then seats, both in key order. Each reservation is looked up by itself (`OFFSET 0` keeps it so): joined,
-- the planner may read every ticket of the event; and parts of this batch are grouped, never joined, because it would compare
-- each with each. The reservations were locked by an earlier statement, so this one sees their places as they are. Answers
-- when each could have been released.
WITH requested AS MATERIALIZED (
    SELECT own.*
    FROM unnest(CAST(:ids AS text[])) AS a (reservation_id) CROSS JOIN LATERAL (
        SELECT r.event_id, r.reservation_id, r.status, r.version, r.reserved_until_ms
               + 1000 * (SELECT e.grace_s FROM inventory.event e WHERE e.event_id = :event_id) AS release_at_ms
        FROM inventory.reservation r WHERE r.event_id = :event_id AND r.reservation_id = a.reservation_id OFFSET 0
    ) AS own
),
seats AS MATERIALIZED (
    SELECT requested.*, own.* FROM requested CROSS JOIN LATERAL (
        SELECT section_id, position, type_id, (
            SELECT concat_ws('-', s.section_id, s.row, coalesce(s.label, CAST(s.number AS text))) FROM inventory.seat AS s
            WHERE s.event_id = x.event_id AND s.section_id = x.section_id AND s.position = x.position
        ) AS seat_id
        FROM inventory.reservation_seat AS x WHERE x.event_id = requested.event_id AND x.reservation_id = requested.reservation_id OFFSET 0
    ) AS own
),
tickets AS MATERIALIZED (
    SELECT requested.*, own.* FROM requested CROSS JOIN LATERAL (
        SELECT section_id, quantity, type_id FROM inventory.reservation_ga AS g
        WHERE g.event_id = requested.event_id AND g.reservation_id = requested.reservation_id OFFSET 0
    ) AS own
),
places AS MATERIALIZED (
    SELECT section_id, sum(n) AS n FROM (
        SELECT section_id, count(*) AS n FROM seats GROUP BY section_id
        UNION ALL SELECT section_id, sum(quantity) FROM tickets GROUP BY section_id
        UNION ALL SELECT '~' || type_id, count(*) FROM seats WHERE type_id <> '' GROUP BY type_id
        UNION ALL SELECT '~' || type_id, sum(quantity) FROM tickets WHERE type_id <> '' GROUP BY type_id
    ) AS all_kinds GROUP BY section_id
),
locked_sections AS MATERIALIZED (
    SELECT s.section_id, places.n FROM inventory.section s JOIN places USING (section_id)
    WHERE s.event_id = :event_id ORDER BY s.section_id FOR UPDATE OF s
),
sections AS (
    UPDATE inventory.section s
    SET seats_remaining = s.seats_remaining + CAST(locked_sections.n AS int), version = s.version + 1
    FROM locked_sections WHERE s.event_id = :event_id AND s.section_id = locked_sections.section_id
    RETURNING s.section_id
),
locked_seats AS MATERIALIZED (
    SELECT s.event_id, s.section_id, s.position
    FROM inventory.seat s JOIN seats USING (event_id, section_id, position, reservation_id)
    WHERE s.status = 'held' AND (SELECT count(*) FROM sections) >= 0
    ORDER BY s.section_id, s.position
    FOR UPDATE OF s
),
released AS (
    UPDATE inventory.seat s SET status = 'available', reservation_id = NULL
    FROM locked_seats l WHERE s.event_id = l.event_id AND s.section_id = l.section_id AND s.position = l.position
),
logged AS (
    INSERT INTO inventory.release_log (event_id, reservation_id, section_id, positions, ga_quantity, reason, late_ms)
    SELECT :event_id, reservation_id, section_id, positions, ga_quantity, :reason,
           greatest(0, CAST(:now_ms AS bigint) - release_at_ms)
    FROM (
        SELECT reservation_id, section_id, array_agg(position ORDER BY position) AS positions, 0 AS ga_quantity, release_at_ms
        FROM seats GROUP BY reservation_id, section_id, release_at_ms
        UNION ALL SELECT reservation_id, section_id, CAST('{}' AS int[]), quantity, release_at_ms FROM tickets
    ) AS l
),
shown AS (
    SELECT status, jsonb_build_object(
        'reservation_id', reservation_id, 'version', version, 'status', status,
        'seats', coalesce(jsonb_agg(seat_id ORDER BY section_id, position) FILTER (WHERE seat_id IS NOT NULL), '[]'),
        'ga', coalesce(jsonb_agg(jsonb_build_object('section_id', section_id, 'quantity', quantity) ORDER BY section_id)
                       FILTER (WHERE quantity IS NOT NULL), '[]')) AS reservation
    FROM (
        SELECT reservation_id, status, version, section_id, position, seat_id, NULL AS quantity FROM seats
        UNION ALL SELECT reservation_id, status, version, section_id, NULL, NULL, quantity FROM tickets
        UNION ALL SELECT reservation_id, status, version, NULL, NULL, NULL, NULL FROM requested
    ) AS parts
    GROUP BY reservation_id, status, version
),
events AS (
    INSERT INTO inventory.outbox_batch (events)
    SELECT jsonb_agg(event) FROM (
        SELECT jsonb_set(
            CAST(CASE status WHEN 'expired' THEN :expired ELSE :cancelled END AS jsonb), '{after,reservations}',
            jsonb_agg(reservation)) AS event
        FROM shown GROUP BY status
    ) AS events HAVING count(*) > 0
)
SELECT release_at_ms FROM requested
