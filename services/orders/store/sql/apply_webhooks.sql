-- Lets the orders that stored webhooks are about read their charges at the provider. A webhook whose order does not exist
-- yet is kept and tried again, at growing intervals.
-- A webhook about a charge whose money is entered already brings nothing new. Orders that this process has in work (:busy)
-- come later: their money is most likely about to be entered.
WITH due AS (
    SELECT w.provider, w.webhook_id, w.reference, EXISTS (
            SELECT FROM orders.money_entry m
            WHERE m.provider = w.provider AND m.provider_ref = w.charge_ref AND m.kind = 'charge'
                AND m.reference = w.reference) AS is_known
    FROM orders.webhook_inbox w
    WHERE w.applied_at IS NULL AND w.due_at <= now() AND w.reference <> ALL(CAST(:busy AS text[]))
    ORDER BY w.due_at LIMIT 200 FOR UPDATE OF w SKIP LOCKED
), woken AS (
    INSERT INTO orders.open_order AS p (reference, event_id, join_seq, owner, sync_requested, wakes, woken)
    SELECT o.reference, o.event_id, o.join_seq, :owner, true, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint, true
    FROM orders."order" o
    WHERE o.reference IN (SELECT reference FROM due WHERE NOT is_known) AND o.status <> 'tombstone'
    ORDER BY o.reference
    ON CONFLICT (reference) DO UPDATE
    SET wakes = p.wakes + 1, woken = true, due_at = clock_timestamp(), sync_requested = true
    RETURNING p.reference, p.event_id, p.join_seq, p.owner, p.epoch
), applied AS (
    UPDATE orders.webhook_inbox w
    SET applied_at = CASE WHEN due.is_known OR n.reference IS NOT NULL THEN now() END,
        tries = w.tries + 1,
        due_at = now() + make_interval(secs => least(3600, power(2, least(w.tries, 12))))
    FROM due LEFT JOIN woken n ON n.reference = due.reference
    WHERE w.provider = due.provider AND w.webhook_id = due.webhook_id
)
SELECT reference, event_id, join_seq, owner, epoch FROM woken
