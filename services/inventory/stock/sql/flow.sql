-- The event's holds: holders, holds by status, and since when the oldest are open or being paid. Every reservation is read
-- once; byte order makes counting holders cheap.
SELECT count(DISTINCT holder COLLATE "C") AS fans_held, count(*) AS holds,
    count(*) FILTER (WHERE status = 'pending_payment') AS pending_payment, count(*) FILTER (WHERE status = 'paying') AS paying,
    count(*) FILTER (WHERE status = 'confirmed') AS confirmed, count(*) FILTER (WHERE status = 'returned') AS returned,
    count(*) FILTER (WHERE status = 'expired') AS expired, count(*) FILTER (WHERE status = 'cancelled') AS cancelled,
    date_part('epoch', clock_timestamp() - min(created_at) FILTER (WHERE status = 'pending_payment')) AS oldest_hold_s,
    date_part('epoch', clock_timestamp() - min(payment_begun_at) FILTER (WHERE status = 'paying')) AS oldest_payment_s,
    min(created_at) AS first_at, greatest(max(created_at), max(confirmed_at), max(ended_at)) AS last_at
FROM inventory.reservation WHERE event_id = :event_id
