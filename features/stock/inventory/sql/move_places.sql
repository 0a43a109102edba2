-- Moves places between general-admission sections and their pools: n available ones and `blocked` ones to each, or from it if
-- negative; one row per section, locked in key order first, that has so many.
WITH locked AS MATERIALIZED (
    SELECT s.section_id, requested.n, requested.blocked
    FROM inventory.section s
    JOIN unnest(CAST(:section_ids AS text[]), CAST(:ns AS int[]), CAST(:blocked AS int[]))
        AS requested (section_id, n, blocked) USING (section_id)
    WHERE s.event_id = :event_id
    ORDER BY s.section_id
    FOR UPDATE OF s
)
UPDATE inventory.section s
SET capacity = s.capacity + locked.n + locked.blocked, seats_remaining = s.seats_remaining + locked.n,
    blocked = s.blocked + locked.blocked, version = s.version + 1
FROM locked
WHERE s.event_id = :event_id AND s.section_id = locked.section_id
  AND s.seats_remaining + locked.n >= 0 AND s.blocked + locked.blocked >= 0
RETURNING s.section_id
