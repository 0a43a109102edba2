-- Places in allotments that are not open, by allotment and section.
SELECT allotment_id, section_id, count(*) AS n FROM inventory.seat
WHERE event_id = :event_id AND allotment_id IS NOT NULL GROUP BY 1, 2
UNION ALL SELECT allotment_id, section_id, allotted FROM inventory.allotment_ga
WHERE event_id = :event_id AND allotted > 0
ORDER BY 1, 2
