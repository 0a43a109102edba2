-- Removes the named places from sold reservations, which keep the rest, with release log rows.
WITH requested AS MATERIALIZED (
    SELECT CAST(:event_id AS text) AS event_id, reservation_id FROM unnest(CAST(:ids AS text[])) AS a (reservation_id)
),
places AS (
    SELECT * FROM unnest(CAST(:section_ids AS text[]), CAST(:positions AS int[])) AS p (section_id, position)
),
tickets AS (
    SELECT * FROM unnest(CAST(:ga_section_ids AS text[]), CAST(:quantities AS int[])) AS t (section_id, quantity)
),
mine AS MATERIALIZED (
    UPDATE inventory.reservation r SET version = r.version + 1
    FROM requested WHERE r.event_id = requested.event_id AND r.reservation_id = requested.reservation_id AND r.status = 'confirmed'
    RETURNING r.event_id, r.reservation_id
),
seats AS (
    DELETE FROM inventory.reservation_seat x USING mine, places p
    WHERE x.event_id = mine.event_id AND x.reservation_id = mine.reservation_id AND x.section_id = p.section_id
      AND x.position = p.position
    RETURNING x.reservation_id, x.section_id, x.position
),
deleted AS (
    DELETE FROM inventory.reservation_ga g USING mine, tickets t
    WHERE g.event_id = mine.event_id AND g.reservation_id = mine.reservation_id AND g.section_id = t.section_id
      AND g.quantity = t.quantity
),
fewer AS (
    UPDATE inventory.reservation_ga g SET quantity = g.quantity - t.quantity
    FROM mine, tickets t
    WHERE g.event_id = mine.event_id AND g.reservation_id = mine.reservation_id AND g.section_id = t.section_id
      AND g.quantity > t.quantity
)
INSERT INTO inventory.release_log (event_id, reservation_id, section_id, positions, ga_quantity, reason, late_ms)
SELECT :event_id, reservation_id, section_id, array_agg(position ORDER BY position), 0, 'returned', 0
FROM seats GROUP BY reservation_id, section_id
UNION ALL
SELECT :event_id, mine.reservation_id, t.section_id, CAST('{}' AS int[]), t.quantity, 'returned', 0 FROM mine, tickets t
