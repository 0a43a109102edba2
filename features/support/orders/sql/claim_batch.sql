-- Claims the next batch of a running event refund: as many orders as its rate allows now. Its row stays locked.
-- Unused time counts for one second at most, or for one order if that takes longer.
WITH due AS (
    SELECT r.id, greatest(r.paced_until, clock_timestamp() - make_interval(secs => greatest(1, 1 / r.rate_per_s))) AS since
    FROM orders.event_refund r WHERE r.status = 'running' ORDER BY r.paced_until LIMIT 1 FOR UPDATE SKIP LOCKED
), allowed AS (
    SELECT id, since, least(CAST(:batch_max AS double precision),
        floor(extract(epoch FROM clock_timestamp() - since) * r.rate_per_s + 1e-6)) AS n
    FROM due JOIN orders.event_refund r USING (id)
)
UPDATE orders.event_refund r
SET paced_until = CASE WHEN n > 0 THEN since + make_interval(secs => n / r.rate_per_s) ELSE r.paced_until END
FROM allowed WHERE allowed.id = r.id
RETURNING r.id, r.event_id, r.reason, r.requested_by, r.role, r.return_to_sale, r.after_reference, CAST(n AS integer) AS n
