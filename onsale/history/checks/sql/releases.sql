-- When and why places of reservations were released. $1 events
SELECT reservation_id, reason, CAST(extract(epoch FROM released_at) * 1000 AS bigint) AS released_ms
FROM inventory.release_log WHERE event_id = ANY($1::text[])
