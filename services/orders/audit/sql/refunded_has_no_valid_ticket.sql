-- Refunded orders with a valid ticket.
SELECT o.reference FROM orders."order" o
WHERE o.event_id = :event_id AND o.status = 'refunded'
AND EXISTS (SELECT FROM orders.ticket t WHERE t.reference = o.reference AND t.void_at IS NULL)
