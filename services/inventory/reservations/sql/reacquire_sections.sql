-- Takes places from sections that have enough left; one row per section, locked in key order first.
WITH locked AS MATERIALIZED (
    SELECT s.section_id, requested.quantity
    FROM inventory.section s
    JOIN unnest(CAST(:section_ids AS text[]), CAST(:quantities AS int[])) AS requested (section_id, quantity)
        USING (section_id)
    WHERE s.event_id = :event_id
    ORDER BY s.section_id
    FOR UPDATE OF s
)
UPDATE inventory.section s
SET seats_remaining = s.seats_remaining - locked.quantity, version = s.version + 1
FROM locked
WHERE s.event_id = :event_id AND s.section_id = locked.section_id AND s.seats_remaining >= locked.quantity
