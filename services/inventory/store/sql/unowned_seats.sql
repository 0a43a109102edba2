-- Held and sold seats of some sections that name no live reservation with that seat.
SELECT s.section_id, s.position, s.reservation_id AS named
FROM inventory.seat s
LEFT JOIN inventory.reservation r USING (event_id, reservation_id)
LEFT JOIN inventory.reservation_seat x USING (event_id, reservation_id, section_id, position)
WHERE s.event_id = :event_id AND s.section_id = ANY(CAST(:section_ids AS text[])) AND s.status IN ('held', 'sold')
  AND (x.position IS NULL OR r.status IS NULL OR r.status NOT IN ('pending_payment', 'paying', 'confirmed'))
