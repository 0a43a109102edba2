-- Sections of these events with more places sold than there are, and price types (~id) with more tickets sold than there are in
-- all, unless an operator or the policy decided so. $1 events
WITH line AS (
    SELECT x.event_id, x.section_id, x.type_id, 1 AS quantity
    FROM inventory.reservation_seat x JOIN inventory.reservation r USING (event_id, reservation_id)
    WHERE x.event_id = ANY($1::text[]) AND r.status = 'confirmed'
    UNION ALL
    SELECT g.event_id, g.section_id, g.type_id, g.quantity
    FROM inventory.reservation_ga g JOIN inventory.reservation r USING (event_id, reservation_id)
    WHERE g.event_id = ANY($1::text[]) AND r.status = 'confirmed'
), sold AS (
    SELECT event_id, section_id, sum(quantity) AS n FROM line GROUP BY event_id, section_id
    UNION ALL
    SELECT event_id, '~' || type_id, sum(quantity) FROM line WHERE type_id <> '' GROUP BY event_id, type_id
)
SELECT c.event_id, c.section_id, c.capacity + c.overbooked_accepted AS capacity, sold.n AS sold
FROM inventory.section c JOIN sold USING (event_id, section_id)
WHERE sold.n > c.capacity + c.overbooked_accepted
  AND NOT EXISTS (SELECT FROM inventory.oversell o WHERE o.event_id = c.event_id AND o.section_id = c.section_id)
