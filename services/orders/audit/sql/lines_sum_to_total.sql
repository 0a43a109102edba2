-- Orders whose lines do not sum to their total.
SELECT o.reference FROM orders."order" o
WHERE o.event_id = :event_id AND o.total_minor <> (
    SELECT sum((line ->> 'paid_minor')::bigint) FROM jsonb_array_elements(o.lines) AS line)
