-- Counts of every section and price type; held and sold are counted from the rows.
SELECT s.section_id, s.capacity + s.overbooked_accepted AS capacity, s.seats_remaining AS available, s.blocked,
       coalesce(t.held, g.held, 0) AS held, coalesce(t.sold, g.sold, 0) AS sold
FROM inventory.section s
LEFT JOIN (
    SELECT section_id, count(*) FILTER (WHERE status = 'held') AS held, count(*) FILTER (WHERE status = 'sold') AS sold
    FROM inventory.seat WHERE event_id = :event_id AND status IN ('held', 'sold') GROUP BY section_id
) AS t USING (section_id)
LEFT JOIN (
    SELECT x.section_id,
           sum(x.quantity) FILTER (WHERE r.status IN ('pending_payment', 'paying')) AS held,
           sum(x.quantity) FILTER (WHERE r.status = 'confirmed') AS sold
    FROM (
        SELECT event_id, reservation_id, section_id, quantity FROM inventory.reservation_ga WHERE event_id = :event_id
        UNION ALL SELECT event_id, reservation_id, '~' || type_id, quantity FROM inventory.reservation_ga
        WHERE event_id = :event_id AND type_id <> ''
        UNION ALL SELECT event_id, reservation_id, '~' || type_id, 1 FROM inventory.reservation_seat
        WHERE event_id = :event_id AND type_id <> ''
    ) AS x JOIN inventory.reservation r USING (event_id, reservation_id)
    WHERE r.status IN ('pending_payment', 'paying', 'confirmed') GROUP BY x.section_id
) AS g USING (section_id)
WHERE s.event_id = :event_id
ORDER BY s.ordinal
