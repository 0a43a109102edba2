-- How long the confirmations took from the first to the last, and how long after their order they came.
SELECT extract(epoch FROM max(confirmed_at) - min(confirmed_at)) AS confirming_s,
    percentile_cont(0.5) WITHIN GROUP (ORDER BY extract(epoch FROM confirmed_at - created_at)) AS p50_s,
    percentile_cont(0.95) WITHIN GROUP (ORDER BY extract(epoch FROM confirmed_at - created_at)) AS p95_s
FROM orders."order"
