-- Locks limited promo codes, in the order of their key, until the transaction ends: who counts their uses after this, in
-- a statement of its own, counts alone.
SELECT FROM orders.promo_code
WHERE (event_id, code) IN (
    SELECT * FROM unnest(CAST(:event_ids AS text[]), CAST(:codes AS text[])) AS asked(event_id, code))
AND num_nonnulls(uses_max, customer_uses_max) > 0
ORDER BY event_id, code FOR NO KEY UPDATE
