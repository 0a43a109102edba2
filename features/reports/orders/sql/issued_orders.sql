-- The orders of an event whose tickets are issued, in the order of their creation, after the last one of the page before. With
-- the buyer's name where the event asks for one an order, and the event's price types.
SELECT o.reference, o.fulfilled_at, o.lines, coalesce(e.price_types, '[]') AS price_types,
    CASE WHEN e.names = 'order' THEN o.customer_name END AS name
FROM orders."order" o LEFT JOIN orders.event e USING (event_id)
WHERE o.event_id = :event_id AND o.fulfilled_at IS NOT NULL
    AND (CAST(:reference AS text) IS NULL OR (o.created_at, o.reference) > (
        SELECT a.created_at, a.reference FROM orders."order" a WHERE a.reference = CAST(:reference AS text)))
ORDER BY o.created_at, o.reference
LIMIT :count_max
