-- How many places a section (`position` -1) is oversold by, or how many times too often a seat was sold.
SELECT sold + s.blocked - s.capacity - s.overbooked_accepted AS excess
FROM inventory.section s CROSS JOIN LATERAL (
    SELECT coalesce(sum(g.quantity), 0) AS sold
    FROM (
        SELECT event_id, reservation_id, quantity FROM inventory.reservation_ga
        WHERE event_id = s.event_id AND section_id = s.section_id
        UNION ALL SELECT event_id, reservation_id, quantity FROM inventory.reservation_ga
        WHERE event_id = s.event_id AND s.kind = 'type' AND type_id = substr(s.section_id, 2)
        UNION ALL SELECT event_id, reservation_id, 1 FROM inventory.reservation_seat
        WHERE event_id = s.event_id AND s.kind = 'type' AND type_id = substr(s.section_id, 2)
    ) AS g JOIN inventory.reservation r USING (event_id, reservation_id)
    WHERE r.status = 'confirmed'
) AS tickets
WHERE s.event_id = :event_id AND s.section_id = :section_id AND CAST(:position AS int) = -1 AND sold > 0
UNION ALL
SELECT count(*) - 1
FROM inventory.reservation_seat x JOIN inventory.reservation r USING (event_id, reservation_id)
WHERE x.event_id = :event_id AND x.section_id = :section_id AND x.position = CAST(:position AS int)
  AND CAST(:position AS int) >= 0 AND r.status = 'confirmed'
HAVING count(*) > 0
