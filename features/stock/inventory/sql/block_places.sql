-- Blocks (n > 0) or unblocks (n < 0) places of sections that have so many available, or blocked; one row per section, locked
-- in key order first.
WITH locked AS MATERIALIZED (
    SELECT s.section_id, requested.n
    FROM inventory.section s
    JOIN unnest(CAST(:section_ids AS text[]), CAST(:ns AS int[])) AS requested (section_id, n) USING (section_id)
    WHERE s.event_id = :event_id
    ORDER BY s.section_id
    FOR UPDATE OF s
)
UPDATE inventory.section s
SET seats_remaining = s.seats_remaining - locked.n, blocked = s.blocked + locked.n, version = s.version + 1
FROM locked
WHERE s.event_id = :event_id AND s.section_id = locked.section_id
  AND s.seats_remaining >= locked.n AND s.blocked >= -locked.n
RETURNING s.section_id
