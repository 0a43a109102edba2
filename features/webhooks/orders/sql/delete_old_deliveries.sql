-- Deletes those of the 10,000 oldest deliveries that are older than :keep_days, or whose endpoint was deleted.
DELETE FROM orders.webhook_delivery d
USING (SELECT id FROM orders.webhook_delivery ORDER BY id LIMIT 10000) o
WHERE d.id = o.id AND (d.created_at < now() - make_interval(days => :keep_days)
    OR NOT EXISTS (SELECT FROM orders.webhook_endpoint h WHERE h.endpoint_id = d.endpoint_id))
