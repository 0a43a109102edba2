-- Tickets of live and sold reservations of these events: place, price type (the usual one by its own id) and price. An order
-- has confirmed those of a sold one. $1 events
SELECT r.event_id, r.reservation_id, r.status, r.order_reference, line.place, line.quantity, line.unit_price_minor,
    CASE line.type_id WHEN '' THEN e.price_types -> 0 ->> 'type_id' ELSE line.type_id END AS type_id,
    line.type_id AS stored_id
FROM inventory.reservation r
JOIN inventory.event e USING (event_id)
CROSS JOIN LATERAL (
    SELECT concat_ws('-', s.section_id, s.row, coalesce(s.label, s.number::text)) AS place, 1 AS quantity,
        x.unit_price_minor, x.type_id
    FROM inventory.reservation_seat x JOIN inventory.seat s USING (event_id, section_id, position)
    WHERE x.event_id = r.event_id AND x.reservation_id = r.reservation_id
    UNION ALL
    SELECT split_part(g.section_id, '~', 1), g.quantity, g.unit_price_minor, g.type_id FROM inventory.reservation_ga g
    WHERE g.event_id = r.event_id AND g.reservation_id = r.reservation_id
) AS line
WHERE r.event_id = ANY($1::text[]) AND r.status IN ('pending_payment', 'paying', 'confirmed')
  AND jsonb_array_length(e.price_types) > 0
