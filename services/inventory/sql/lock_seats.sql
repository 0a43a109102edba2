-- Seats about to change by an operator's hand, locked in key order, as they are.
SELECT s.section_id, s.position, s.status, s.allotment_id
FROM inventory.seat s
JOIN unnest(CAST(:section_ids AS text[]), CAST(:positions AS int[])) AS asked (section_id, position)
    USING (section_id, position)
WHERE s.event_id = :event_id
ORDER BY s.section_id, s.position
FOR UPDATE OF s
