-- Tickets of each section that were sold, how many of them came back, and when the first and the last was sold.
SELECT line ->> 'section_id' AS section_id, sum(jsonb_array_length(line -> 'tickets'))::bigint AS sold,
    coalesce(sum((line ->> 'returned')::bigint), 0)::bigint AS returned,
    min(o.confirmed_at) AS first_at, max(o.confirmed_at) AS last_at
FROM orders."order" o, jsonb_array_elements(o.lines) AS line
WHERE o.event_id = :event_id AND o.confirmed_at IS NOT NULL
GROUP BY 1 ORDER BY 1
