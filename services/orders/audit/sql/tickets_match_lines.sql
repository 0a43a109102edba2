-- Orders whose tickets are not those of their lines.
SELECT o.reference FROM orders."order" o
WHERE o.event_id = :event_id AND o.fulfilled_at IS NOT NULL
AND (SELECT count(*) FROM orders.ticket t WHERE t.reference = o.reference)
    <> (SELECT sum(l.quantity) FROM orders.order_line l WHERE l.reference = o.reference)
