-- Sections of these events with more places sold than there are, unless an operator or the policy decided so. $1 events
SELECT c.event_id, c.section_id, c.capacity + c.overbooked_accepted AS capacity, sold.n AS sold
FROM inventory.section c CROSS JOIN LATERAL (
    SELECT (SELECT count(*) FROM inventory.reservation_seat x JOIN inventory.reservation r USING (event_id, reservation_id)
            WHERE x.event_id = c.event_id AND x.section_id = c.section_id AND r.status = 'confirmed')
         + (SELECT coalesce(sum(g.quantity), 0) FROM inventory.reservation_ga g
            JOIN inventory.reservation r USING (event_id, reservation_id)
            WHERE g.event_id = c.event_id AND g.section_id = c.section_id AND r.status = 'confirmed') AS n) AS sold
WHERE c.event_id = ANY($1::text[]) AND c.kind <> 'type' AND sold.n > c.capacity + c.overbooked_accepted
  AND NOT EXISTS (SELECT FROM inventory.oversell o WHERE o.event_id = c.event_id AND o.section_id = c.section_id)
