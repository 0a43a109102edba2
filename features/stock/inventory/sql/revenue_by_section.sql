-- Revenue of sold places by section, in minor units.
WITH bought AS MATERIALIZED (SELECT event_id, reservation_id FROM inventory.reservation
WHERE event_id = :event_id AND status = 'confirmed')
SELECT section_id, sum(unit_price_minor)::bigint AS earned
FROM inventory.reservation_seat JOIN bought USING (event_id, reservation_id) GROUP BY section_id
UNION ALL SELECT section_id, sum(quantity * unit_price_minor)::bigint
FROM inventory.reservation_ga JOIN bought USING (event_id, reservation_id) GROUP BY section_id
