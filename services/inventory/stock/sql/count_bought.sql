-- Bought tickets of a key range of the reservations: seats by holder, GA tickets by holder and section. Holders whose names
-- have the same last characters are counted together.
SELECT right(r.holder, :characters) AS holder, CAST(NULL AS text) AS section_id, count(*) AS tickets
FROM inventory.reservation r JOIN inventory.reservation_seat x USING (event_id, reservation_id)
WHERE r.event_id = :event_id AND r.reservation_id > :after AND r.reservation_id <= :upto AND r.status = 'confirmed'
GROUP BY 1
UNION ALL
SELECT right(r.holder, :characters), g.section_id, sum(g.quantity)
FROM inventory.reservation r JOIN inventory.reservation_ga g USING (event_id, reservation_id)
WHERE r.event_id = :event_id AND r.reservation_id > :after AND r.reservation_id <= :upto AND r.status = 'confirmed'
GROUP BY 1, g.section_id
