-- Lines, adjustments and attempts without an order.
SELECT l.reference FROM (
    SELECT reference FROM orders.order_line UNION ALL SELECT reference FROM orders.order_adjustment
    UNION ALL SELECT reference FROM orders.payment_attempt) AS l
LEFT JOIN orders."order" o USING (reference) WHERE o.reference IS NULL OR o.status = 'tombstone'
