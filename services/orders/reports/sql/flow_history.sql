-- Orders created and confirmed in each step of time since :start, and the tickets confirmed in it.
WITH own AS (
    SELECT created_at, confirmed_at, (
        SELECT sum(jsonb_array_length(line -> 'tickets')) FROM jsonb_array_elements(lines) AS line) AS tickets
    FROM orders."order" WHERE event_id = :event_id AND status <> 'tombstone'
)
SELECT floor(date_part('epoch', happened.at - CAST(:start AS timestamptz)) / :step_s)::bigint AS step,
    count(*) FILTER (WHERE happened.what = 'ordered') AS ordered, count(*) FILTER (WHERE happened.what = 'confirmed') AS confirmed,
    coalesce(sum(own.tickets) FILTER (WHERE happened.what = 'confirmed'), 0)::bigint AS tickets
FROM own
CROSS JOIN LATERAL (VALUES ('ordered', own.created_at), ('confirmed', own.confirmed_at)) AS happened (what, at)
WHERE happened.at >= :start AND happened.at < CAST(:start AS timestamptz) + make_interval(secs => :step_s * :steps)
GROUP BY 1 ORDER BY 1
