-- Locks limited promo codes, in the order of their key, until the transaction ends. A later statement of the transaction
-- then counts their uses while no other transaction can redeem them.
SELECT FROM orders.promo_code
WHERE (event_id, code) IN (
    SELECT * FROM unnest(CAST(:event_ids AS text[]), CAST(:codes AS text[])) AS requested(event_id, code))
AND num_nonnulls(uses_max, customer_uses_max) > 0
ORDER BY event_id, code FOR NO KEY UPDATE
