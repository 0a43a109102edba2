-- Chooses the latest buyers for return: in a section or of a price type as many as its excess needs, of a seat all but the first.
WITH bought AS (
    SELECT r.reservation_id, r.order_reference, g.quantity AS n, r.confirmed_at
    FROM inventory.reservation_ga g JOIN inventory.reservation r USING (event_id, reservation_id)
    WHERE g.event_id = :event_id AND :section_id IN (g.section_id, '~' || g.type_id) AND CAST(:position AS int) = -1
      AND r.status = 'confirmed'
    UNION ALL
    SELECT r.reservation_id, r.order_reference, 1, r.confirmed_at
    FROM inventory.reservation_seat x JOIN inventory.reservation r USING (event_id, reservation_id)
    WHERE x.event_id = :event_id AND r.status = 'confirmed' AND (
        x.section_id = :section_id AND x.position = CAST(:position AS int)
        OR '~' || x.type_id = :section_id AND CAST(:position AS int) = -1
    )
),
ordered AS (
    SELECT *, sum(n) OVER (ORDER BY confirmed_at DESC, reservation_id DESC) - n AS before FROM bought
)
INSERT INTO inventory.oversell_return (event_id, reservation_id, oversell_id, order_reference)
SELECT :event_id, reservation_id, :oversell_id, order_reference FROM ordered
WHERE before < CAST(:excess AS int) AND order_reference IS NOT NULL
ON CONFLICT DO NOTHING
RETURNING reservation_id
