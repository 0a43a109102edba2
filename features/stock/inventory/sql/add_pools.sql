-- Makes the pools of an allotment in these sections, without places yet.
INSERT INTO inventory.section (event_id, section_id, ordinal, name, kind, rows, seats_per_row, capacity, seats_remaining,
price_minor, fee_minor)
SELECT event_id, section_id || '~' || CAST(:allotment_id AS text), ordinal, name, kind, 0, 0, 0, 0, price_minor, fee_minor
FROM inventory.section WHERE event_id = :event_id AND section_id = ANY(CAST(:section_ids AS text[]))
ON CONFLICT DO NOTHING
