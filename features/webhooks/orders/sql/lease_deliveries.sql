-- Leases up to :many due deliveries. Endpoints take turns, longest due first, and none has more than :each_max in flight
-- over all processes; a disabled one has nothing due.
WITH candidates AS (
    SELECT c.id, b.in_flight + row_number() OVER (PARTITION BY h.endpoint_id ORDER BY c.due_at) AS turn, c.due_at
    FROM orders.webhook_endpoint h
    CROSS JOIN LATERAL (
        SELECT count(*) AS in_flight FROM orders.webhook_delivery d
        WHERE d.endpoint_id = h.endpoint_id AND d.lease IS NOT NULL AND d.lease_until > now()
    ) b
    CROSS JOIN LATERAL (
        SELECT d.id, d.due_at FROM orders.webhook_delivery d
        WHERE d.endpoint_id = h.endpoint_id AND d.due_at <= now() AND (d.lease IS NULL OR d.lease_until < now())
        ORDER BY d.due_at LIMIT greatest(0, CAST(:each_max AS integer) - b.in_flight)
    ) c
    WHERE h.disabled_at IS NULL
    ORDER BY turn, c.due_at LIMIT CAST(:many AS integer)
), locked AS (
    SELECT d.id FROM orders.webhook_delivery d JOIN candidates c ON c.id = d.id
    WHERE d.due_at IS NOT NULL AND (d.lease IS NULL OR d.lease_until < now())
    FOR UPDATE OF d SKIP LOCKED
)
UPDATE orders.webhook_delivery d
SET lease = :lease, lease_until = now() + make_interval(secs => :lease_s)
FROM locked, orders.webhook_endpoint h
WHERE d.id = locked.id AND h.endpoint_id = d.endpoint_id
RETURNING d.id, d.endpoint_id, d.lease, h.url, h.secret, d.message_id, d.body, d.attempts
