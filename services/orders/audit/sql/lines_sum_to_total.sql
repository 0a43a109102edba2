-- Orders whose lines do not sum to their total.
SELECT o.reference FROM orders."order" o JOIN orders.order_line l USING (reference)
WHERE o.event_id = :event_id GROUP BY o.reference, o.total_minor
HAVING o.total_minor <> sum(coalesce(l.paid_minor, l.quantity * l.unit_price_minor))
