-- Places of every section: those on sale, those left, and those held. Only open reservations are counted, which are few:
-- what is neither left nor held is sold.
SELECT s.section_id, s.name, s.capacity + s.overbooked_accepted - s.blocked AS on_sale, s.seats_remaining AS available,
    coalesce(h.held, 0)::bigint AS held,
    s.capacity + s.overbooked_accepted - s.blocked - s.seats_remaining - coalesce(h.held, 0)::bigint AS sold
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
WHERE s.event_id = :event_id
ORDER BY s.ordinal
