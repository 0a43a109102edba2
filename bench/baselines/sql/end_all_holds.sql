WITH ended AS (DELETE FROM {0}.hold RETURNING section_id, quantity)
UPDATE {0}.section s SET seats_remaining = seats_remaining + back.n
FROM (SELECT section_id, sum(quantity) AS n FROM ended GROUP BY section_id) AS back
WHERE s.section_id = back.section_id
