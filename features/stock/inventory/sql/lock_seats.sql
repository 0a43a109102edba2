-- Locks seats in key order and returns their status.
SELECT s.section_id, s.position, s.status, s.allotment_id
FROM inventory.seat s
JOIN (SELECT CAST(:event_id AS text) AS event_id, a.*
      FROM unnest(CAST(:section_ids AS text[]), CAST(:positions AS int[])) AS a (section_id, position) OFFSET 0) AS requested
    USING (event_id, section_id, position)
ORDER BY s.section_id, s.position
FOR UPDATE OF s
