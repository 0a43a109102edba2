SELECT extract(epoch FROM max(confirmed_at) - min(created_at)) AS all_s,
    percentile_cont(0.5) WITHIN GROUP (ORDER BY extract(epoch FROM confirmed_at - created_at)) AS p50_s,
    percentile_cont(0.95) WITHIN GROUP (ORDER BY extract(epoch FROM confirmed_at - created_at)) AS p95_s
FROM {table}
