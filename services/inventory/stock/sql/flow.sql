-- The event's holds: holders, holds by status, and since when the oldest are open or being paid. All that began before the
-- oldest open one have ended: `earlier`, of which `earlier_given_back`. Every reservation is read once; byte order makes
-- counting holders cheap.
WITH oldest AS (
    SELECT min(created_at) AS open_since FROM inventory.reservation
    WHERE event_id = :event_id AND status IN ('pending_payment', 'paying')
)
SELECT count(DISTINCT holder COLLATE "C") AS fans_held, count(*) AS holds,
    count(*) FILTER (WHERE status = 'pending_payment') AS pending_payment, count(*) FILTER (WHERE status = 'paying') AS paying,
    count(*) FILTER (WHERE status = 'confirmed') AS confirmed, count(*) FILTER (WHERE status = 'returned') AS returned,
    count(*) FILTER (WHERE status = 'expired') AS expired, count(*) FILTER (WHERE status = 'cancelled') AS cancelled,
    date_part('epoch', clock_timestamp() - min(created_at) FILTER (WHERE status = 'pending_payment')) AS oldest_hold_s,
    date_part('epoch', clock_timestamp() - min(payment_begun_at) FILTER (WHERE status = 'paying')) AS oldest_payment_s,
    date_part('epoch', clock_timestamp() - min(open_since)) AS oldest_open_s,
    count(*) FILTER (WHERE created_at < open_since) AS earlier,
    count(*) FILTER (WHERE created_at < open_since AND status IN ('expired', 'cancelled')) AS earlier_given_back,
    min(created_at) AS first_at, greatest(max(created_at), max(confirmed_at), max(ended_at)) AS last_at
FROM inventory.reservation CROSS JOIN oldest WHERE event_id = :event_id
