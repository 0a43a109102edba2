-- How many orders are due and in no worker's hands, at most 10,000 of an event, and for how long the first of them has been.
-- Those for which nobody waits are left out.
-- Event by event: most orders are due at a later time, and an index scan of all of them would look at each.
WITH RECURSIVE events AS (
    (SELECT event_id FROM orders."order" WHERE due_at IS NOT NULL ORDER BY event_id LIMIT 1)
    UNION ALL
    SELECT (
        SELECT o.event_id FROM orders."order" o
        WHERE o.due_at IS NOT NULL AND o.event_id > e.event_id ORDER BY o.event_id LIMIT 1
    )
    FROM events e WHERE e.event_id IS NOT NULL
)
SELECT coalesce(sum(due.orders), 0)::bigint AS orders, coalesce(extract(epoch FROM now() - min(due.first_at)), 0) AS oldest_s
FROM events e
CROSS JOIN LATERAL (
    SELECT count(*) AS orders, min(due_at) AS first_at
    FROM (
        SELECT o.due_at FROM orders."order" o
        WHERE o.event_id = e.event_id AND o.due_at <= now() AND NOT o.routine AND (o.lease IS NULL OR o.lease_until < now())
        LIMIT 10000
    ) AS of_event
) AS due
WHERE e.event_id IS NOT NULL
