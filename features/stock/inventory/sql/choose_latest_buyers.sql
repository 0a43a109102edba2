-- Chooses the latest buyers for return: in a section, or of a price type (~id), as many as its excess needs, of a seat all but
-- the first. A reservation may have several lines of one section, or of one type.
WITH place AS (
    SELECT g.event_id, g.reservation_id, g.quantity AS n FROM inventory.reservation_ga g
    WHERE g.event_id = :event_id AND CAST(:position AS int) = -1
      AND (g.section_id = :section_id OR g.type_id <> '' AND '~' || g.type_id = :section_id)
    UNION ALL
    SELECT x.event_id, x.reservation_id, 1 FROM inventory.reservation_seat x
    WHERE x.event_id = :event_id AND x.section_id = :section_id AND x.position = CAST(:position AS int)
    UNION ALL
    SELECT x.event_id, x.reservation_id, 1 FROM inventory.reservation_seat x
    WHERE x.event_id = :event_id AND CAST(:position AS int) = -1 AND x.type_id <> '' AND '~' || x.type_id = :section_id
),
bought AS (
    SELECT r.reservation_id, r.order_reference, sum(p.n) AS n, r.confirmed_at
    FROM place p JOIN inventory.reservation r USING (event_id, reservation_id)
    WHERE r.status = 'confirmed'
    GROUP BY r.reservation_id, r.order_reference, r.confirmed_at
),
ordered AS (
    SELECT *, sum(n) OVER (ORDER BY confirmed_at DESC, reservation_id DESC) - n AS before FROM bought
)
INSERT INTO inventory.oversell_return (event_id, reservation_id, oversell_id, order_reference)
SELECT :event_id, reservation_id, :oversell_id, order_reference FROM ordered
WHERE before < CAST(:excess AS int) AND order_reference IS NOT NULL
ON CONFLICT DO NOTHING
RETURNING reservation_id
