-- Queues the deliveries of these events, oldest first; one that is queued already stays as it is. Endpoints of all events get
-- nothing of a rehearsal. A body is made once for all endpoints. Of an order's row, which may be newer than the event, it has
-- only what never changes about the lines; how many of their tickets went back is what the event says. Nothing has a name of
-- a ticket.
WITH messages AS MATERIALIZED (
    SELECT t.n, t.event, k.kind, w.endpoint_ids, jsonb_build_object(
        'type', k.kind,
        'timestamp', to_char(to_timestamp((t.event ->> 'occurred_at_ms')::bigint / 1000.0) AT TIME ZONE 'UTC',
            'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'),
        'data', (t.event -> 'after') - 'holder' - 'lane' - 'join_seq' - 'returned'
            || jsonb_build_object('version', t.event -> 'version', 'lines', l.lines))::text AS body
    FROM jsonb_array_elements(CAST(:events AS jsonb)) WITH ORDINALITY AS t (event, n)
    CROSS JOIN LATERAL (
        SELECT CASE WHEN t.event ->> 'type' = 'order.cancelled' AND t.event #>> '{after,status}' = 'expired'
            THEN 'order.expired' ELSE t.event ->> 'type' END AS kind
    ) k
    LEFT JOIN orders.event e ON e.event_id = t.event ->> 'event_id'
    JOIN LATERAL (
        SELECT array_agg(h.endpoint_id) AS endpoint_ids FROM orders.webhook_endpoint h
        WHERE h.disabled_at IS NULL AND k.kind = ANY (h.kinds)
            AND (h.event_id = t.event ->> 'event_id' OR h.event_id IS NULL AND e.rehearsal IS NOT TRUE)
    ) w ON w.endpoint_ids IS NOT NULL
    CROSS JOIN LATERAL (
        SELECT coalesce(jsonb_agg(
            jsonb_build_object(
                'section_id', p.line -> 'section_id', 'seat_id', p.line -> 'seat_id',
                'quantity', jsonb_array_length(p.line -> 'tickets'),
                'returned', coalesce(t.event #> '{after,returned}' -> (p.n::integer - 1), '0'),
                'unit_price_minor', p.line -> 'unit_price_minor', 'paid_minor', p.line -> 'paid_minor',
                'tickets', jsonb_path_query_array(p.line, '$.tickets[*].id'))
            || jsonb_strip_nulls(jsonb_build_object(
                'section_name', e.section_names -> (p.line ->> 'section_id'), 'type_id', y.type_id,
                'type_name', coalesce((
                    SELECT named ->> 'name' FROM jsonb_array_elements(e.price_types) AS named
                    WHERE named ->> 'type_id' = y.type_id), y.type_id)))
            ORDER BY p.n), '[]') AS lines
        FROM orders."order" o CROSS JOIN LATERAL jsonb_array_elements(o.lines) WITH ORDINALITY AS p (line, n)
        CROSS JOIN LATERAL (
            SELECT coalesce(p.line ->> 'type_id', e.price_types -> 0 ->> 'type_id') AS type_id
        ) y
        WHERE o.reference = t.event #>> '{after,reference}'
    ) l
)
INSERT INTO orders.webhook_delivery (endpoint_id, message_id, kind, event_id, reference, body)
SELECT unnest(m.endpoint_ids), 'msg_' || (m.event ->> 'id'), m.kind, m.event ->> 'event_id',
    m.event #>> '{after,reference}', m.body
FROM messages m
ORDER BY m.n
ON CONFLICT DO NOTHING
