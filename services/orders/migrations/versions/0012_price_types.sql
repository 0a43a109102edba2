ALTER TABLE orders.event ADD COLUMN price_types JSONB DEFAULT '[]'::jsonb NOT NULL;
COMMENT ON COLUMN orders.event.price_types IS 'Id, name and proof of each, the usual one first.';

-- A line, and so each of its tickets, has the price type that it was bought at; the id of the usual one is empty.
CREATE OR REPLACE VIEW orders.order_line AS
SELECT o.reference, l.line_no::integer AS line_no, l.line ->> 'section_id' AS section_id, l.line ->> 'seat_id' AS seat_id,
    jsonb_array_length(l.line -> 'tickets') AS quantity, (l.line ->> 'unit_price_minor')::bigint AS unit_price_minor,
    coalesce((l.line ->> 'returned')::integer, 0) AS returned, (l.line ->> 'paid_minor')::bigint AS paid_minor,
    coalesce(l.line ->> 'type_id', '') AS type_id
FROM orders."order" o CROSS JOIN LATERAL jsonb_array_elements(o.lines) WITH ORDINALITY AS l(line, line_no);

CREATE OR REPLACE VIEW orders.ticket AS
SELECT o.reference, l.line_no::integer AS line_no, t.n::integer AS n, o.event_id, t.ticket ->> 'id' AS ticket_id,
    o.fulfilled_at AS issued_at, to_timestamp((t.ticket ->> 'void_at_ms')::bigint / 1000.0) AS void_at,
    t.ticket ->> 'void_reason' AS void_reason, l.line ->> 'section_id' AS section_id, l.line ->> 'seat_id' AS seat_id,
    coalesce(l.line ->> 'type_id', '') AS type_id
FROM orders."order" o CROSS JOIN LATERAL jsonb_array_elements(o.lines) WITH ORDINALITY AS l(line, line_no)
CROSS JOIN LATERAL jsonb_array_elements(l.line -> 'tickets') WITH ORDINALITY AS t(ticket, n)
WHERE o.fulfilled_at IS NOT NULL;
