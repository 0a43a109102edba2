-- Idempotency keys with more than one order.
SELECT min(reference) FROM orders."order"
WHERE event_id = :event_id AND key_hash IS NOT NULL GROUP BY owner_id, key_hash HAVING count(*) > 1
