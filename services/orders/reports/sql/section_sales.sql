-- Tickets of each section that were sold, how many of them came back, and when the first and the last was sold.
SELECT l.section_id, sum(l.quantity)::bigint AS sold, sum(l.returned)::bigint AS returned,
    min(o.confirmed_at) AS first_at, max(o.confirmed_at) AS last_at
FROM orders."order" o JOIN orders.order_line l USING (reference)
WHERE o.event_id = :event_id AND o.confirmed_at IS NOT NULL
GROUP BY l.section_id ORDER BY l.section_id
