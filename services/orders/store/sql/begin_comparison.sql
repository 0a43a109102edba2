-- Begins to compare a provider's charges with our ledger, those of the time up to :after_s seconds ago; no other process does
-- so for the next minute. Returns where the last comparison ended, and whether an order was created since that could have
-- charged anything; no row if another process compares.
INSERT INTO orders.provider_comparison AS c (provider, after_s, compared_until, taken_until)
VALUES (:provider, CAST(:after_s AS integer), clock_timestamp() - make_interval(secs => CAST(:after_s AS integer) + CAST(:first_s AS integer)),
    clock_timestamp() + interval '1 minute')
ON CONFLICT (provider, after_s) DO UPDATE SET taken_until = excluded.taken_until
WHERE c.taken_until < clock_timestamp()
RETURNING (extract(epoch FROM compared_until) * 1000)::bigint AS since_ms,
    (extract(epoch FROM clock_timestamp() - make_interval(secs => CAST(:after_s AS integer))) * 1000)::bigint AS until_ms,
    EXISTS (SELECT FROM orders."order" o WHERE o.created_at > c.compared_until - interval '1 hour') AS is_busy
