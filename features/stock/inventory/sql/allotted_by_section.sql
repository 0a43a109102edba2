-- Places in allotments that are not open, by allotment, section and state.
SELECT allotment_id, section_id, CASE status WHEN 'blocked' THEN 'kept_aside' ELSE status END AS status, count(*) AS n
FROM inventory.seat WHERE event_id = :event_id AND allotment_id IS NOT NULL GROUP BY 1, 2, 3
UNION ALL SELECT allotment_id, section_id, 'kept_aside', allotted FROM inventory.allotment_ga
WHERE event_id = :event_id AND allotted > 0
ORDER BY 1, 2, 3
