-- Live holds by event and status, and the age of the oldest of each.
SELECT event_id, status, count(*) AS holds, extract(epoch FROM now() - min(created_at)) AS oldest_s
FROM inventory.reservation
WHERE status IN ('pending_payment', 'paying')
GROUP BY event_id, status
