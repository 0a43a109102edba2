-- Requests a provider sync of the orders that stored webhooks are about, and makes them due. A webhook whose order does
-- not exist yet is kept and tried again, at growing intervals.
-- A webhook about a charge whose money is entered already brings nothing new and requests no sync. That is checked only
-- while nobody has a lease on its order: a worker may be about to enter that money.
WITH due AS (
    SELECT w.provider, w.webhook_id, w.reference, EXISTS (
            SELECT FROM orders.money_entry m
            WHERE m.provider = w.provider AND m.provider_ref = w.charge_ref AND m.kind = 'charge'
                AND m.reference = w.reference) AS is_known
    FROM orders.webhook_inbox w
    WHERE w.applied_at IS NULL AND w.due_at <= now() AND NOT EXISTS (
        SELECT FROM orders."order" o
        WHERE w.charge_ref IS NOT NULL AND o.reference = w.reference AND o.lease IS NOT NULL AND o.lease_until > now())
    ORDER BY w.due_at LIMIT 200 FOR UPDATE OF w SKIP LOCKED
), synced AS (
    UPDATE orders."order" o SET sync_requested = true, wake_count = wake_count + 1, due_at = now(), routine = false
    WHERE o.status <> 'tombstone' AND o.reference IN (
        SELECT l.reference FROM orders."order" l WHERE l.reference IN (SELECT reference FROM due WHERE NOT is_known)
        ORDER BY l.reference FOR UPDATE
    )
    RETURNING o.reference
)
UPDATE orders.webhook_inbox w
SET applied_at = CASE WHEN due.is_known OR s.reference IS NOT NULL THEN now() END,
    tries = w.tries + 1,
    due_at = now() + make_interval(secs => least(3600, power(2, least(w.tries, 12))))
FROM due LEFT JOIN synced s ON s.reference = due.reference
WHERE w.provider = due.provider AND w.webhook_id = due.webhook_id
