-- Queues the deliveries of these events, oldest first; one that is queued already stays as it is. Endpoints of all events get
-- nothing of a rehearsal.
INSERT INTO orders.webhook_delivery (endpoint_id, message_id, kind, event_id, reference, body)
SELECT h.endpoint_id, 'msg_' || (t.event ->> 'id'), k.kind, t.event ->> 'event_id', t.event #>> '{after,reference}',
    jsonb_build_object(
        'type', k.kind,
        'timestamp', to_char(to_timestamp((t.event ->> 'occurred_at_ms')::bigint / 1000.0) AT TIME ZONE 'UTC',
            'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'),
        'data', (t.event -> 'after') - 'holder' - 'lane' - 'join_seq'
            || jsonb_build_object('version', t.event -> 'version'))::text
FROM jsonb_array_elements(CAST(:events AS jsonb)) WITH ORDINALITY AS t (event, n)
CROSS JOIN LATERAL (
    SELECT CASE WHEN t.event ->> 'type' = 'order.cancelled' AND t.event #>> '{after,status}' = 'expired'
        THEN 'order.expired' ELSE t.event ->> 'type' END AS kind
) k
JOIN orders.webhook_endpoint h ON h.disabled_at IS NULL AND k.kind = ANY (h.kinds)
    AND (h.event_id = t.event ->> 'event_id' OR h.event_id IS NULL AND NOT EXISTS (
        SELECT FROM orders.event e WHERE e.event_id = t.event ->> 'event_id' AND e.rehearsal))
ORDER BY t.n
ON CONFLICT DO NOTHING
