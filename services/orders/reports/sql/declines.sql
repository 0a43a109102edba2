-- Declined payments of the event by reason, the most frequent first. Each finds its order by key (`OFFSET 0` keeps it so).
SELECT coalesce(a.reason, 'unknown') AS reason, count(*) AS declines
FROM orders.payment_attempt a
CROSS JOIN LATERAL (SELECT o.event_id FROM orders."order" o WHERE o.reference = a.reference OFFSET 0) AS own
WHERE a.status = 'failed' AND own.event_id = :event_id
GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT :reasons_max
