-- Tickets of the orders confirmed in each of the last seconds, counted back from :until. An order is confirmed within an hour
-- of its creation, or it is not counted here.
SELECT floor(date_part('epoch', CAST(:until AS timestamptz) - o.confirmed_at))::int AS second, sum(line.tickets)::bigint AS tickets,
    count(*) AS orders
FROM orders."order" o CROSS JOIN LATERAL (
    SELECT sum(jsonb_array_length(line -> 'tickets')) AS tickets FROM jsonb_array_elements(o.lines) AS line
) AS line
WHERE o.event_id = :event_id AND o.created_at > CAST(:until AS timestamptz) - interval '1 hour'
    AND o.confirmed_at > CAST(:until AS timestamptz) - make_interval(secs => :seconds) AND o.confirmed_at <= :until
GROUP BY 1
