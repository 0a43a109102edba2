-- Adds GA places to an allotment.
INSERT INTO inventory.allotment_ga (event_id, allotment_id, section_id, allotted)
SELECT :event_id, :allotment_id, section_id, n
FROM unnest(CAST(:section_ids AS text[]), CAST(:ns AS int[])) AS a (section_id, n)
ON CONFLICT (event_id, allotment_id, section_id)
DO UPDATE SET allotted = inventory.allotment_ga.allotted + excluded.allotted
