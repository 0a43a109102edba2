-- Blocks or unblocks seats, manually or for an allotment; only those that have the expected status.
UPDATE inventory.seat s
SET status = CASE WHEN CAST(:blocked AS boolean) THEN 'blocked' ELSE 'available' END,
    allotment_id = CASE WHEN CAST(:blocked AS boolean) THEN CAST(:allotment_id AS text) END
FROM (SELECT CAST(:event_id AS text) AS event_id, a.*
      FROM unnest(CAST(:section_ids AS text[]), CAST(:positions AS int[])) AS a (section_id, position) OFFSET 0) AS requested
WHERE s.event_id = requested.event_id AND s.section_id = requested.section_id AND s.position = requested.position
  AND s.status = CASE WHEN CAST(:blocked AS boolean) THEN 'available' ELSE 'blocked' END
  AND (CAST(:blocked AS boolean) OR s.allotment_id IS NOT DISTINCT FROM CAST(:allotment_id AS text))
