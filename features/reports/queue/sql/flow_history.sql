-- Joins and first calls in each step of time since :start, and how long the fans called in it had waited.
WITH joins AS (
    SELECT floor(date_part('epoch', joined_at - CAST(:start AS timestamptz)) / :step_s)::bigint AS step, count(*) AS joined
    FROM queue.place WHERE event_id = :event_id AND epoch = :epoch GROUP BY 1
), calls AS (
    SELECT floor(date_part('epoch', a.called_at - CAST(:start AS timestamptz)) / :step_s)::bigint AS step, count(*) AS called,
        percentile_cont(ARRAY[0.5, 0.95]) WITHIN GROUP (ORDER BY date_part('epoch', a.called_at - p.joined_at)) AS waits_s
    FROM (SELECT * FROM queue.admission WHERE event_id = :event_id AND epoch = :epoch AND call = 1 OFFSET 0) AS a
    JOIN queue.place p USING (event_id, epoch, lane, join_seq) GROUP BY 1
), counted AS (
    SELECT step, coalesce(joined, 0) AS joined, coalesce(called, 0) AS called, waits_s[1] AS wait_p50_s, waits_s[2] AS wait_p95_s
    FROM joins FULL JOIN calls USING (step)
    WHERE step BETWEEN 0 AND CAST(:steps AS int) - 1 ORDER BY step
)
SELECT coalesce(jsonb_agg(counted), '[]') AS steps FROM counted
