-- What was sold, line by line, after the line that was read last. GA tickets lie at no place: -1.
SELECT r.reservation_id, r.order_reference, r.confirmed_at, r.currency, r.holder, r.email,
       line.section_id, line.position, line.quantity, line.unit_price_minor
FROM inventory.reservation r
CROSS JOIN LATERAL (
    SELECT section_id, position, 1 AS quantity, unit_price_minor FROM inventory.reservation_seat x
    WHERE x.event_id = r.event_id AND x.reservation_id = r.reservation_id
    UNION ALL
    SELECT section_id, -1, quantity, unit_price_minor FROM inventory.reservation_ga x
    WHERE x.event_id = r.event_id AND x.reservation_id = r.reservation_id
) AS line
WHERE r.event_id = :event_id AND r.status = 'confirmed' AND r.reservation_id >= :reservation_id
  AND (r.reservation_id, line.section_id, line.position) > (:reservation_id, :section_id, CAST(:position AS int))
ORDER BY r.reservation_id, line.section_id, line.position
LIMIT :count_max
