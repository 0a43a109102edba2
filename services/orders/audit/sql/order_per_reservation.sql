-- Reservations with more than one order.
SELECT reservation_id FROM orders."order"
WHERE event_id = :event_id AND status <> 'tombstone' GROUP BY reservation_id HAVING count(*) > 1
