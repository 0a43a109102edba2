-- Why places were released: reservations by reason.
SELECT reason, count(DISTINCT reservation_id COLLATE "C") AS reservations
FROM inventory.release_log WHERE event_id = :event_id GROUP BY reason ORDER BY 2 DESC, 1
