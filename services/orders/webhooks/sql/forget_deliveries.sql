-- Of the oldest deliveries those that are older than :keep_days, or whose endpoint is gone.
DELETE FROM orders.hook_delivery d
USING (SELECT id FROM orders.hook_delivery ORDER BY id LIMIT 10000) o
WHERE d.id = o.id AND (d.created_at < now() - make_interval(days => :keep_days)
    OR NOT EXISTS (SELECT FROM orders.hook h WHERE h.hook_id = d.hook_id))
