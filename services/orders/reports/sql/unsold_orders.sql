-- Orders that ended without a sale, by status and reason.
SELECT status, coalesce(end_reason, '') AS reason, count(*) AS orders
FROM orders."order" WHERE event_id = :event_id AND status IN ('cancelled', 'expired', 'late_paid', 'review')
GROUP BY 1, 2 ORDER BY 3 DESC, 1, 2
