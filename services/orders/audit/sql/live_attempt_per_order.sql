-- Orders with more than one live attempt.
SELECT a.reference FROM orders.payment_attempt a JOIN orders."order" o USING (reference)
WHERE o.event_id = :event_id
AND a.status IN ('created', 'unknown', 'requires_action', 'processing', 'authorised')
GROUP BY a.reference HAVING count(*) > 1
