-- Orders with a ticket that another one has too, or with more tickets returned than a line has.
SELECT min(t.reference) FROM orders.ticket t WHERE t.event_id = :event_id GROUP BY t.ticket_id HAVING count(*) > 1
UNION ALL
SELECT o.reference FROM orders."order" o JOIN orders.order_line l USING (reference)
WHERE o.event_id = :event_id AND l.returned NOT BETWEEN 0 AND l.quantity
