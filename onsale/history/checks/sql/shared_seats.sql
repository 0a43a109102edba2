-- Seats of these events that more than one reservation holds or has bought. $1 events
SELECT x.event_id, concat_ws('-', s.section_id, s.row, coalesce(s.label, s.number::text)) AS seat, array_agg(r.reservation_id) AS reservations
FROM inventory.reservation_seat x
JOIN inventory.reservation r USING (event_id, reservation_id)
JOIN inventory.seat s USING (event_id, section_id, position)
WHERE x.event_id = ANY($1::text[]) AND r.status IN ('pending_payment', 'paying', 'confirmed')
  AND NOT EXISTS (SELECT FROM inventory.oversell o WHERE o.event_id = x.event_id AND o.section_id = x.section_id)
GROUP BY x.event_id, s.section_id, s.row, coalesce(s.label, s.number::text) HAVING count(*) > 1
