-- Live reservations, of a key range, whose seat names another reservation or has another status.
SELECT x.section_id, x.position, s.reservation_id AS named, r.reservation_id AS owner
FROM inventory.reservation r
JOIN inventory.reservation_seat x USING (event_id, reservation_id)
JOIN inventory.seat s USING (event_id, section_id, position)
WHERE r.event_id = :event_id AND r.reservation_id > :after AND r.reservation_id <= :upto
  AND r.status IN ('pending_payment', 'paying', 'confirmed')
  AND (s.reservation_id IS DISTINCT FROM r.reservation_id
       OR s.status <> CASE r.status WHEN 'confirmed' THEN 'sold' ELSE 'held' END)
