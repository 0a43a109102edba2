-- Price types of these events of which more tickets are held or sold than there are in all. $1 events
SELECT c.event_id, substr(c.section_id, 2) AS type_id, c.capacity + c.overbooked_accepted AS capacity, given.n AS given
FROM inventory.section c CROSS JOIN LATERAL (
    SELECT (SELECT count(*) FROM inventory.reservation_seat x JOIN inventory.reservation r USING (event_id, reservation_id)
            WHERE x.event_id = c.event_id AND x.type_id = substr(c.section_id, 2)
              AND r.status IN ('pending_payment', 'paying', 'confirmed'))
         + (SELECT coalesce(sum(g.quantity), 0) FROM inventory.reservation_ga g
            JOIN inventory.reservation r USING (event_id, reservation_id)
            WHERE g.event_id = c.event_id AND g.type_id = substr(c.section_id, 2)
              AND r.status IN ('pending_payment', 'paying', 'confirmed')) AS n) AS given
WHERE c.event_id = ANY($1::text[]) AND c.kind = 'type' AND given.n > c.capacity + c.overbooked_accepted
