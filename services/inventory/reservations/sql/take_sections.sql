-- Takes places from sections: one row a section, locked in key order first, and only where enough is left.
WITH locked AS MATERIALIZED (
    SELECT s.section_id, asked.quantity
    FROM inventory.section s
    JOIN unnest(CAST(:section_ids AS text[]), CAST(:quantities AS int[])) AS asked (section_id, quantity)
        USING (section_id)
    WHERE s.event_id = :event_id
    ORDER BY s.section_id
    FOR UPDATE OF s
)
UPDATE inventory.section s
SET seats_remaining = s.seats_remaining - locked.quantity, version = s.version + 1
FROM locked
WHERE s.event_id = :event_id AND s.section_id = locked.section_id AND s.seats_remaining >= locked.quantity
