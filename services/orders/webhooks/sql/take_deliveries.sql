-- Leases up to :many due deliveries. Endpoints take turns, the longest due first, and none has more than :each_max on
-- their way anywhere; one that is disabled has nothing due.
WITH candidates AS (
    SELECT c.id, b.on_their_way + row_number() OVER (PARTITION BY h.hook_id ORDER BY c.due_at) AS turn, c.due_at
    FROM orders.hook h
    CROSS JOIN LATERAL (
        SELECT count(*) AS on_their_way FROM orders.hook_delivery d
        WHERE d.hook_id = h.hook_id AND d.lease IS NOT NULL AND d.lease_until > now()
    ) b
    CROSS JOIN LATERAL (
        SELECT d.id, d.due_at FROM orders.hook_delivery d
        WHERE d.hook_id = h.hook_id AND d.due_at <= now() AND (d.lease IS NULL OR d.lease_until < now())
        ORDER BY d.due_at LIMIT greatest(0, CAST(:each_max AS integer) - b.on_their_way)
    ) c
    WHERE h.disabled_at IS NULL
    ORDER BY turn, c.due_at LIMIT CAST(:many AS integer)
), locked AS (
    SELECT d.id FROM orders.hook_delivery d JOIN candidates c ON c.id = d.id
    WHERE d.due_at IS NOT NULL AND (d.lease IS NULL OR d.lease_until < now())
    FOR UPDATE OF d SKIP LOCKED
)
UPDATE orders.hook_delivery d
SET lease = :lease, lease_until = now() + make_interval(secs => :lease_s)
FROM locked, orders.hook h
WHERE d.id = locked.id AND h.hook_id = d.hook_id
RETURNING d.id, d.hook_id, d.lease, h.url, h.secret, d.message_id, d.body, d.attempts
