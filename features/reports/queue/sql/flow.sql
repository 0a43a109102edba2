-- The line since its last reset: places and how they ended; calls, and how long fans waited from joining to their first one.
-- Places are read once; of the calls, which may be few, each finds its place by key (`OFFSET 0` keeps it so).
WITH line AS (
    SELECT count(*) AS joined, count(*) FILTER (WHERE ended_at IS NULL) AS live,
        count(*) FILTER (WHERE end_reason = 'completed') AS completed,
        count(*) FILTER (WHERE end_reason = 'expired') AS expired,
        count(*) FILTER (WHERE end_reason = 'left') AS left_early,
        min(joined_at) AS first_at, max(joined_at) AS last_at
    FROM queue.place WHERE event_id = :event_id AND epoch = :epoch
), calls AS (
    SELECT count(*) FILTER (WHERE a.call = 1) AS called,
        count(*) FILTER (WHERE a.call = 1 AND p.ended_at IS NULL) AS live,
        count(a.jti) AS claimed, count(*) FILTER (WHERE a.state = 'missed') AS missed_calls, max(a.called_at) AS last_at,
        percentile_cont(ARRAY[0.5, 0.95, 1]) WITHIN GROUP (ORDER BY date_part('epoch', a.called_at - p.joined_at))
            FILTER (WHERE a.call = 1) AS waits_s
    FROM (SELECT * FROM queue.admission WHERE event_id = :event_id AND epoch = :epoch OFFSET 0) AS a
    JOIN queue.place p USING (event_id, epoch, lane, join_seq)
)
SELECT statement_timestamp() AS at, joined, called, claimed, line.live - calls.live AS waiting, missed_calls, completed, expired,
    left_early, first_at, greatest(line.last_at, calls.last_at) AS last_at,
    jsonb_build_object('fans', called, 'p50_s', waits_s[1], 'p95_s', waits_s[2], 'longest_s', waits_s[3]) AS wait
FROM line CROSS JOIN calls
