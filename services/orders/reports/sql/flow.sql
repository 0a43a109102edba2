-- The event's orders: buyers, orders by status, and since when the oldest is pending or due. Every order is read once; byte
-- order makes counting buyers cheap.
WITH due AS (
    SELECT due_at FROM orders.open_order WHERE event_id = :event_id AND due_at <= clock_timestamp()
)
SELECT count(DISTINCT owner_id COLLATE "C") AS fans_ordered,
    count(DISTINCT owner_id COLLATE "C") FILTER (WHERE confirmed_at IS NOT NULL) AS fans_confirmed,
    count(confirmed_at) AS confirmed_ever, (SELECT count(*) FROM due) AS due,
    count(*) FILTER (WHERE status = 'pending') AS pending, count(*) FILTER (WHERE status = 'confirmed') AS confirmed,
    count(*) FILTER (WHERE status = 'cancelled') AS cancelled, count(*) FILTER (WHERE status = 'expired') AS expired,
    count(*) FILTER (WHERE status = 'late_paid') AS late_paid, count(*) FILTER (WHERE status = 'review') AS review,
    count(*) FILTER (WHERE status = 'partially_refunded') AS partially_refunded,
    count(*) FILTER (WHERE status = 'refunded') AS refunded,
    date_part('epoch', clock_timestamp() - min(created_at) FILTER (WHERE status = 'pending')) AS oldest_pending_s,
    (SELECT date_part('epoch', clock_timestamp() - min(due.due_at)) FROM due) AS oldest_due_s,
    clock_timestamp() AS at, min(created_at) AS first_at, greatest(max(created_at), max(confirmed_at), max(ended_at)) AS last_at
FROM orders."order" WHERE event_id = :event_id AND status <> 'tombstone'
