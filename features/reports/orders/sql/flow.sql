-- The event's orders: buyers, orders by status, since when the oldest is pending, how many wait for a worker and since when,
-- declined payments by reason, and the tickets of the orders confirmed in each of the last :seconds. Every order is read once;
-- byte order makes counting buyers cheap. Of the orders that are due in a process as many wait as its last beat says, the
-- latest due; those of nobody all do. An order is confirmed within an hour of its creation, or its tickets are not recent.
WITH due AS (
    SELECT o.due_at FROM (
        SELECT d.owner, d.due_at, row_number() OVER (PARTITION BY d.owner ORDER BY d.due_at DESC) AS n
        FROM orders.open_order d WHERE d.event_id = :event_id AND d.due_at <= clock_timestamp()
    ) AS o
    LEFT JOIN orders.process p ON p.owner = o.owner AND p.beat_at > clock_timestamp() - make_interval(secs => :takeover_s)
    WHERE p.owner IS NULL OR o.n <= -p.free
), recent AS (
    SELECT floor(date_part('epoch', statement_timestamp() - o.confirmed_at))::int AS second, sum(line.tickets)::bigint AS tickets,
        count(*) AS orders
    FROM orders."order" o CROSS JOIN LATERAL (
        SELECT sum(jsonb_array_length(line -> 'tickets')) AS tickets FROM jsonb_array_elements(o.lines) AS line
    ) AS line
    WHERE o.event_id = :event_id AND o.created_at > statement_timestamp() - interval '1 hour'
        AND o.confirmed_at > statement_timestamp() - make_interval(secs => :seconds)
    GROUP BY 1
), declined AS (
    SELECT coalesce(attempt ->> 'reason', 'unknown') AS reason, count(*) AS declines
    FROM orders."order" o, jsonb_array_elements(o.attempts) AS attempt
    WHERE o.event_id = :event_id AND attempt ->> 'status' = 'failed'
    GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT :reasons_max
)
SELECT CAST(:event_id AS text) AS event_id, statement_timestamp() AS at, count(DISTINCT owner_id COLLATE "C") AS fans_ordered,
    count(DISTINCT owner_id COLLATE "C") FILTER (WHERE confirmed_at IS NOT NULL) AS fans_confirmed,
    count(confirmed_at) AS confirmed_ever,
    jsonb_build_object(
        'pending', count(*) FILTER (WHERE status = 'pending'), 'review', count(*) FILTER (WHERE status = 'review'),
        'confirmed', count(*) FILTER (WHERE status = 'confirmed'),
        'partially_refunded', count(*) FILTER (WHERE status = 'partially_refunded'),
        'cancelled', count(*) FILTER (WHERE status = 'cancelled'), 'expired', count(*) FILTER (WHERE status = 'expired'),
        'late_paid', count(*) FILTER (WHERE status = 'late_paid'),
        'refunded', count(*) FILTER (WHERE status = 'refunded')) AS by_status,
    date_part('epoch', clock_timestamp() - min(created_at) FILTER (WHERE status = 'pending')) AS oldest_pending_s,
    (SELECT count(*) FROM due) AS due, (SELECT date_part('epoch', clock_timestamp() - min(due_at)) FROM due) AS oldest_due_s,
    (SELECT coalesce(jsonb_object_agg(reason, declines), '{}') FROM declined) AS declines,
    (SELECT jsonb_build_object(
        'tickets', jsonb_agg(coalesce(recent.tickets, 0) ORDER BY second DESC), 'orders', coalesce(sum(recent.orders), 0))
     FROM generate_series(0, CAST(:seconds AS integer) - 1) AS second LEFT JOIN recent USING (second)) AS recent,
    min(created_at) AS first_at, greatest(max(created_at), max(confirmed_at), max(ended_at)) AS last_at
FROM orders."order" WHERE event_id = :event_id AND status <> 'tombstone'
