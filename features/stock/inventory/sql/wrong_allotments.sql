-- Sections with fewer blocked places than allotted ones, and open allotments that still have places.
SELECT s.section_id FROM inventory.section s JOIN (SELECT event_id, section_id, sum(allotted) AS allotted
 FROM inventory.allotment_ga WHERE event_id = :event_id GROUP BY event_id, section_id) AS g
USING (event_id, section_id) WHERE s.kind = 'ga' AND s.blocked < g.allotted
UNION ALL SELECT a.allotment_id FROM (SELECT event_id, allotment_id FROM inventory.allotment_ga
 WHERE event_id = :event_id AND allotted > 0 UNION SELECT event_id, allotment_id FROM inventory.seat
 WHERE event_id = :event_id AND allotment_id IS NOT NULL) AS g
JOIN inventory.allotment a USING (event_id, allotment_id) WHERE a.opened_at IS NOT NULL
