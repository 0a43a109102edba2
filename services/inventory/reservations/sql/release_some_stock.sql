-- Makes the named places of a hold, which the caller has locked, available again. Sections, then seats, both locked in key
-- order; the seats wait for the sections by counting their rows.
WITH places AS MATERIALIZED (
    SELECT CAST(:event_id AS text) AS event_id, CAST(:reservation_id AS text) AS reservation_id, p.*
    FROM unnest(CAST(:section_ids AS text[]), CAST(:positions AS int[])) AS p (section_id, position)
),
wanted AS MATERIALIZED (
    SELECT section_id, sum(n) AS n FROM (
        SELECT section_id, 1 AS n FROM places
        UNION ALL
        SELECT * FROM unnest(CAST(:ga_section_ids AS text[]), CAST(:quantities AS int[])) AS t (section_id, n)
        UNION ALL
        SELECT '~' || type_id, n
        FROM unnest(CAST(:type_ids AS text[]), CAST(:type_quantities AS int[])) AS t (type_id, n)
    ) AS all_kinds GROUP BY section_id
),
locked_sections AS MATERIALIZED (
    SELECT s.event_id, s.section_id, wanted.n FROM inventory.section s JOIN wanted USING (section_id)
    WHERE s.event_id = :event_id ORDER BY s.section_id FOR UPDATE OF s
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
)
UPDATE inventory.seat s SET status = 'available', reservation_id = NULL
FROM locked_seats l WHERE s.event_id = l.event_id AND s.section_id = l.section_id AND s.position = l.position
