-- Removes the named places from a reservation that has this status, which keeps the rest, with release log rows. The caller
-- has locked it. The status is joined: as a constant it would allow the index of live holds, which without statistics
-- looks as good as the key and is read whole.
WITH mine AS MATERIALIZED (
    UPDATE inventory.reservation r
    SET total_minor = coalesce(CAST(:total_minor AS bigint), r.total_minor),
        released_tickets = r.released_tickets + CAST(:released_tickets AS int), version = r.version + 1
    FROM unnest(ARRAY[CAST(:status AS text)]) AS locked (status)
    WHERE r.event_id = :event_id AND r.reservation_id = :reservation_id AND r.status = locked.status
    RETURNING r.event_id, r.reservation_id
),
places AS MATERIALIZED (
    SELECT mine.*, p.* FROM mine, unnest(CAST(:section_ids AS text[]), CAST(:positions AS int[])) AS p (section_id, position)
),
tickets AS MATERIALIZED (
    SELECT mine.*, t.*
    FROM mine, unnest(CAST(:ga_section_ids AS text[]), CAST(:quantities AS int[]), CAST(:ga_type_ids AS text[]))
        AS t (section_id, quantity, type_id)
),
deleted_seats AS (
    DELETE FROM inventory.reservation_seat x USING places p
    WHERE x.event_id = p.event_id AND x.reservation_id = p.reservation_id AND x.section_id = p.section_id
      AND x.position = p.position
),
deleted_tickets AS (
    DELETE FROM inventory.reservation_ga g USING tickets t
    WHERE g.event_id = t.event_id AND g.reservation_id = t.reservation_id AND g.section_id = t.section_id
      AND g.type_id = t.type_id AND g.quantity = t.quantity
),
fewer_tickets AS (
    UPDATE inventory.reservation_ga g SET quantity = g.quantity - t.quantity FROM tickets t
    WHERE g.event_id = t.event_id AND g.reservation_id = t.reservation_id AND g.section_id = t.section_id
      AND g.type_id = t.type_id AND g.quantity > t.quantity
)
INSERT INTO inventory.release_log (event_id, reservation_id, section_id, positions, ga_quantity, reason, late_ms)
SELECT event_id, reservation_id, section_id, array_agg(position ORDER BY position), 0, :reason, 0
FROM places GROUP BY event_id, reservation_id, section_id
UNION ALL SELECT event_id, reservation_id, section_id, CAST('{}' AS int[]), quantity, :reason, 0 FROM tickets
