-- Tickets of confirmed orders of these events by place and price type, as inventory stores it, of events whose price types
-- orders knows. $1 events
SELECT o.reference, coalesce(line ->> 'seat_id', line ->> 'section_id') AS place,
    coalesce(line ->> 'type_id', '') AS stored_id, sum(jsonb_array_length(line -> 'tickets')) AS quantity
FROM orders."order" o
JOIN orders.event e USING (event_id)
CROSS JOIN LATERAL jsonb_array_elements(o.lines) AS line
WHERE o.event_id = ANY($1::text[]) AND o.status = 'confirmed'
  AND jsonb_array_length(coalesce(to_jsonb(e) -> 'price_types', '[]')) > 0
GROUP BY o.reference, place, stored_id
