-- Stores the result of one attempt if the delivery is still leased by us, and updates its endpoint: a success ends its
-- failing time; `gone`, or failures for too long, disable it. A success of a healthy endpoint writes nothing there.
WITH finished AS (
    UPDATE orders.webhook_delivery d
    SET status = CASE WHEN :delivered THEN 'delivered' WHEN CAST(:pause_s AS double precision) IS NULL THEN 'failed'
            ELSE 'pending' END,
        attempts = d.attempts + 1,
        due_at = CASE WHEN NOT :delivered THEN clock_timestamp() + make_interval(secs => :pause_s) END,
        delivered_at = CASE WHEN :delivered THEN clock_timestamp() END,
        answer_status = :answer_status, error = :error, lease = NULL, lease_until = NULL
    WHERE d.id = :id AND d.lease = :lease
    RETURNING d.endpoint_id
)
UPDATE orders.webhook_endpoint h
SET failing_since = CASE WHEN NOT :delivered THEN coalesce(h.failing_since, clock_timestamp()) END,
    disabled_at = CASE
        WHEN :gone OR NOT :delivered AND h.failing_since < now() - make_interval(secs => :disable_after_s)
        THEN coalesce(h.disabled_at, clock_timestamp()) ELSE h.disabled_at END,
    disabled_reason = CASE
        WHEN h.disabled_at IS NOT NULL THEN h.disabled_reason
        WHEN :gone THEN 'It answered 410: no more webhooks are wanted.'
        WHEN NOT :delivered AND h.failing_since < now() - make_interval(secs => :disable_after_s)
        THEN 'Nothing could be delivered for too long.' END
FROM finished f
WHERE h.endpoint_id = f.endpoint_id AND (NOT :delivered OR h.failing_since IS NOT NULL)
RETURNING h.disabled_at IS NOT NULL AS disabled
