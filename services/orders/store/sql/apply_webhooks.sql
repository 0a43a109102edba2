-- Marks stored webhooks as applied and returns the orders whose charges are to be read at the provider. A webhook whose order
-- does not exist yet is kept and tried again, at growing intervals. One about a charge whose money is entered already brings
-- nothing new. Orders that this process has in work (:busy) come later: their money is most likely about to be entered.
WITH due AS (
    SELECT w.provider, w.webhook_id, EXISTS (
            SELECT FROM orders.money_entry m
            WHERE m.provider = w.provider AND m.provider_ref = w.charge_ref AND m.kind = 'charge'
                AND m.reference = w.reference) AS is_known,
        EXISTS (SELECT FROM orders."order" o WHERE o.reference = w.reference AND o.status <> 'tombstone') AS has_order
    FROM orders.webhook_inbox w
    WHERE w.applied_at IS NULL AND w.due_at <= now() AND w.reference <> ALL(CAST(:busy AS text[]))
    ORDER BY w.due_at LIMIT 200 FOR UPDATE OF w SKIP LOCKED
), applied AS (
    UPDATE orders.webhook_inbox w
    SET applied_at = CASE WHEN due.is_known OR due.has_order THEN now() END,
        tries = w.tries + 1,
        due_at = now() + make_interval(secs => least(3600, power(2, least(w.tries, 12))))
    FROM due WHERE w.provider = due.provider AND w.webhook_id = due.webhook_id
    RETURNING w.reference, due.has_order AND NOT due.is_known AS is_new
)
SELECT DISTINCT reference FROM applied WHERE is_new
