-- Releases the named places of a hold, which the caller has locked, with release log rows. Sections, then seats, both locked
-- in key order; each step waits for the one before by counting its rows.
WITH mine AS MATERIALIZED (
    UPDATE inventory.reservation r
    SET total_minor = :total_minor, released_tickets = r.released_tickets + :n, version = r.version + 1
    WHERE r.event_id = :event_id AND r.reservation_id = :reservation_id
    RETURNING r.event_id, r.reservation_id
),
places AS MATERIALIZED (
    SELECT mine.*, p.* FROM mine, unnest(CAST(:section_ids AS text[]), CAST(:positions AS int[])) AS p (section_id, position)
),
tickets AS MATERIALIZED (
    SELECT mine.*, t.*
    FROM mine, unnest(CAST(:ga_section_ids AS text[]), CAST(:quantities AS int[])) AS t (section_id, quantity)
),
wanted AS MATERIALIZED (
    SELECT event_id, section_id, sum(n) AS n FROM (
        SELECT event_id, section_id, 1 AS n FROM places UNION ALL SELECT event_id, section_id, quantity FROM tickets
    ) AS both_kinds GROUP BY event_id, section_id
),
locked_sections AS MATERIALIZED (
    SELECT s.event_id, s.section_id, wanted.n FROM inventory.section s JOIN wanted USING (event_id, section_id)
    ORDER BY s.section_id FOR UPDATE OF s
),
sections AS (
    UPDATE inventory.section s SET seats_remaining = s.seats_remaining + CAST(l.n AS int), version = s.version + 1
    FROM locked_sections l WHERE s.event_id = l.event_id AND s.section_id = l.section_id
    RETURNING s.section_id
),
locked_seats AS MATERIALIZED (
    SELECT s.event_id, s.section_id, s.position
    FROM inventory.seat s JOIN places USING (event_id, section_id, position, reservation_id)
    WHERE s.status = 'held' AND (SELECT count(*) FROM sections) >= 0
    ORDER BY s.section_id, s.position FOR UPDATE OF s
),
seats AS (
    UPDATE inventory.seat s SET status = 'available', reservation_id = NULL
    FROM locked_seats l WHERE s.event_id = l.event_id AND s.section_id = l.section_id AND s.position = l.position
),
deleted_seats AS (
    DELETE FROM inventory.reservation_seat x USING places p
    WHERE x.event_id = p.event_id AND x.reservation_id = p.reservation_id AND x.section_id = p.section_id
      AND x.position = p.position
),
deleted_tickets AS (
    DELETE FROM inventory.reservation_ga g USING tickets t
    WHERE g.event_id = t.event_id AND g.reservation_id = t.reservation_id AND g.section_id = t.section_id
      AND g.quantity = t.quantity
),
fewer_tickets AS (
    UPDATE inventory.reservation_ga g SET quantity = g.quantity - t.quantity FROM tickets t
    WHERE g.event_id = t.event_id AND g.reservation_id = t.reservation_id AND g.section_id = t.section_id
      AND g.quantity > t.quantity
)
INSERT INTO inventory.release_log (event_id, reservation_id, section_id, positions, ga_quantity, reason, late_ms)
SELECT event_id, reservation_id, section_id, array_agg(position ORDER BY position), 0, 'given-back', 0
FROM places GROUP BY event_id, reservation_id, section_id
UNION ALL SELECT event_id, reservation_id, section_id, CAST('{}' AS int[]), quantity, 'given-back', 0 FROM tickets
