-- How many orders are due and in no worker's hands, at most 10,000, and for how long the first of them has been.
SELECT count(*), coalesce(extract(epoch FROM now() - min(due_at)), 0)
FROM (
    SELECT due_at FROM orders."order"
    WHERE due_at IS NOT NULL AND due_at <= now() AND (lease IS NULL OR lease_until < now())
    LIMIT 10000
) AS due
