-- Declined payments of the event by reason, the most frequent first. Each order is read once.
SELECT coalesce(a.reason, 'unknown') AS reason, count(*) AS declines
FROM (
    SELECT attempt ->> 'reason' AS reason FROM orders."order" o, jsonb_array_elements(o.attempts) AS attempt
    WHERE o.event_id = :event_id AND attempt ->> 'status' = 'failed'
) AS a
GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT :reasons_max
