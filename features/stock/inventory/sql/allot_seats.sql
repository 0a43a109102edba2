-- Gives seats that are available to an allotment, or back to general sale; only those that are in the expected one.
UPDATE inventory.seat s SET allotment_id = CAST(:to AS text)
FROM (SELECT CAST(:event_id AS text) AS event_id, a.*
      FROM unnest(CAST(:section_ids AS text[]), CAST(:positions AS int[])) AS a (section_id, position) OFFSET 0) AS requested
WHERE s.event_id = requested.event_id AND s.section_id = requested.section_id AND s.position = requested.position
  AND CASE WHEN s.status = 'available' THEN s.allotment_id IS NOT DISTINCT FROM CAST(:from AS text) END
