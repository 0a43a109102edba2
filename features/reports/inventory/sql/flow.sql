-- The event's holds: holders, holds by status, and since when the oldest are open or being paid. All that began before the
-- oldest open one have ended: `earlier`, of which `earlier_given_back`. Every reservation is read once; byte order makes
-- counting holders cheap. Places of every section with its pools: those on sale, those left, and those held. Only open reservations are
-- counted for them, which are few: what is neither left nor held is sold.
WITH oldest AS (
    SELECT min(created_at) AS open_since FROM inventory.reservation
    WHERE event_id = :event_id AND status IN ('pending_payment', 'paying')
), sections AS (
    SELECT split_part(s.section_id, '~', 1) AS section_id, min(s.name) AS name,
        sum(s.capacity + s.overbooked_accepted - s.blocked) AS on_sale, sum(s.seats_remaining) AS available,
        coalesce(sum(h.held), 0)::bigint AS held,
        sum(s.capacity + s.overbooked_accepted - s.blocked - s.seats_remaining) - coalesce(sum(h.held), 0)::bigint AS sold
    FROM inventory.section s
    LEFT JOIN (
        SELECT place.section_id, sum(place.n) AS held
        FROM (SELECT event_id, reservation_id FROM inventory.reservation
              WHERE event_id = :event_id AND status IN ('pending_payment', 'paying') OFFSET 0) AS r
        CROSS JOIN LATERAL (
            SELECT x.section_id, 1 AS n FROM inventory.reservation_seat x
            WHERE x.event_id = r.event_id AND x.reservation_id = r.reservation_id
            UNION ALL
            SELECT g.section_id, g.quantity FROM inventory.reservation_ga g
            WHERE g.event_id = r.event_id AND g.reservation_id = r.reservation_id
        ) AS place
        GROUP BY place.section_id
    ) AS h USING (section_id)
    WHERE s.event_id = :event_id AND s.kind <> 'type'
    GROUP BY split_part(s.section_id, '~', 1)
    ORDER BY min(s.ordinal)
)
SELECT statement_timestamp() AS at, count(DISTINCT holder COLLATE "C") AS fans_held, count(*) AS holds,
    count(*) FILTER (WHERE status = 'pending_payment') AS pending_payment, count(*) FILTER (WHERE status = 'paying') AS paying,
    count(*) FILTER (WHERE status = 'confirmed') AS confirmed, count(*) FILTER (WHERE status = 'returned') AS returned,
    count(*) FILTER (WHERE status = 'expired') AS expired, count(*) FILTER (WHERE status = 'cancelled') AS cancelled,
    date_part('epoch', clock_timestamp() - min(created_at) FILTER (WHERE status = 'pending_payment')) AS oldest_hold_s,
    date_part('epoch', clock_timestamp() - min(payment_begun_at) FILTER (WHERE status = 'paying')) AS oldest_payment_s,
    date_part('epoch', clock_timestamp() - min(open_since)) AS oldest_open_s,
    count(*) FILTER (WHERE created_at < open_since) AS earlier,
    count(*) FILTER (WHERE created_at < open_since AND status IN ('expired', 'cancelled')) AS earlier_given_back,
    min(created_at) AS first_at, greatest(max(created_at), max(confirmed_at), max(ended_at)) AS last_at,
    (SELECT coalesce(jsonb_agg(sections), '[]') FROM sections) AS sections
FROM inventory.reservation CROSS JOIN oldest WHERE event_id = :event_id
