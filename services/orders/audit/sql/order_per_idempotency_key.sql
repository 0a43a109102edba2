-- Idempotency keys without an order.
SELECT i.reference FROM orders.idempotency i LEFT JOIN orders."order" o USING (reference)
WHERE o.reference IS NULL OR o.status = 'tombstone'
