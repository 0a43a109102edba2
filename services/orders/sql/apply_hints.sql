-- Webhooks become hints on their orders; those without one are kept and tried again, ever less often.
WITH due AS (
    SELECT provider, webhook_id, reference FROM orders.webhook_inbox
    WHERE applied_at IS NULL AND due_at <= now() ORDER BY due_at LIMIT 200 FOR UPDATE SKIP LOCKED
), hinted AS (
    UPDATE orders."order" o SET hinted = true, nudge = nudge + 1, due_at = now()
    WHERE o.status <> 'tombstone' AND o.reference IN (
        SELECT l.reference FROM orders."order" l WHERE l.reference IN (SELECT reference FROM due)
        ORDER BY l.reference FOR UPDATE
    )
    RETURNING o.reference
)
UPDATE orders.webhook_inbox w
SET applied_at = CASE WHEN h.reference IS NOT NULL THEN now() END,
    tries = w.tries + 1,
    due_at = now() + make_interval(secs => least(3600, power(2, least(w.tries, 12))))
FROM due LEFT JOIN hinted h ON h.reference = due.reference
WHERE w.provider = due.provider AND w.webhook_id = due.webhook_id
RETURNING w.applied_at IS NOT NULL AS applied
