-- Events in batches behind a cursor. A process of 0.1.0 still inserts into `outbox`: its events are passed on to
-- `outbox_batch` in its own transaction, and its relay finds nothing to publish. `outbox` and `outbox_lease` serve nothing
-- else, and are dropped by a later version.
CREATE SEQUENCE orders.outbox_batch_id_seq;
CREATE TABLE orders.outbox_batch (
    id BIGINT DEFAULT nextval(CASE WHEN pg_current_xact_id() IS NOT NULL THEN 'orders.outbox_batch_id_seq'::regclass END)
        NOT NULL,
    written_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    events JSONB NOT NULL,
    CONSTRAINT pk_outbox_batch PRIMARY KEY (id)
);
ALTER SEQUENCE orders.outbox_batch_id_seq OWNED BY orders.outbox_batch.id;

CREATE TABLE orders.outbox_cursor (
    name TEXT NOT NULL,
    id BIGINT NOT NULL,
    CONSTRAINT pk_outbox_cursor PRIMARY KEY (name)
);

-- The published events of the last day come first, before anybody waits. Those of the last minute count as unpublished, as
-- a relay may be marking some of them just now.
INSERT INTO orders.outbox_batch (written_at, events)
SELECT max(published_at), jsonb_agg(body ORDER BY id)
FROM (
    SELECT id, body, published_at, row_number() OVER (ORDER BY id) / 200 AS part FROM orders.outbox
    WHERE published_at < now() - interval '1 minute'
        AND published_at > (SELECT max(published_at) FROM orders.outbox) - interval '1 day'
) AS published
GROUP BY part ORDER BY part;
INSERT INTO orders.outbox_cursor (name, id) SELECT 'relay', coalesce(max(id), 0) FROM orders.outbox_batch;

LOCK TABLE orders.outbox IN SHARE ROW EXCLUSIVE MODE;
INSERT INTO orders.outbox_batch (events)
SELECT jsonb_agg(body ORDER BY id)
FROM (
    SELECT id, body, row_number() OVER (ORDER BY id) / 200 AS part FROM orders.outbox
    WHERE published_at IS NULL OR published_at >= now() - interval '1 minute'
) AS waiting
GROUP BY part ORDER BY part;
UPDATE orders.outbox SET published_at = clock_timestamp() WHERE published_at IS NULL;

CREATE FUNCTION orders.pass_event_on() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO orders.outbox_batch (events) VALUES (jsonb_build_array(NEW.body));
    RETURN NULL;
END
$$;
CREATE TRIGGER pass_event_on BEFORE INSERT ON orders.outbox FOR EACH ROW EXECUTE FUNCTION orders.pass_event_on();

-- Queues the webhook deliveries of every order event in the transaction of the event, whichever statement inserts it.
-- Endpoints of all events get nothing of a rehearsal. Events that were brought along above have their deliveries.
DROP TRIGGER queue_deliveries ON orders.outbox;
CREATE OR REPLACE FUNCTION orders.queue_deliveries() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM orders.webhook_endpoint WHERE disabled_at IS NULL) THEN
        RETURN NULL;
    END IF;
    INSERT INTO orders.webhook_delivery (endpoint_id, message_id, kind, event_id, reference, body)
    SELECT h.endpoint_id, 'msg_' || (t.event ->> 'id'), k.kind, t.event ->> 'event_id', t.event #>> '{after,reference}',
        jsonb_build_object(
            'type', k.kind,
            'timestamp', to_char(to_timestamp((t.event ->> 'occurred_at_ms')::bigint / 1000.0) AT TIME ZONE 'UTC',
                'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'),
            'data', (t.event -> 'after') - 'holder' - 'lane' - 'join_seq'
                || jsonb_build_object('version', t.event -> 'version'))::text
    FROM inserted b
    CROSS JOIN LATERAL jsonb_array_elements(b.events) AS t (event)
    CROSS JOIN LATERAL (
        SELECT CASE WHEN t.event ->> 'type' = 'order.cancelled' AND t.event #>> '{after,status}' = 'expired'
            THEN 'order.expired' ELSE t.event ->> 'type' END AS kind
    ) k
    JOIN orders.webhook_endpoint h ON h.disabled_at IS NULL AND k.kind = ANY (h.kinds)
        AND (h.event_id = t.event ->> 'event_id' OR h.event_id IS NULL AND NOT EXISTS (
            SELECT FROM orders.event e WHERE e.event_id = t.event ->> 'event_id' AND e.rehearsal))
    ON CONFLICT DO NOTHING;
    RETURN NULL;
END
$$;
CREATE TRIGGER queue_deliveries AFTER INSERT ON orders.outbox_batch REFERENCING NEW TABLE AS inserted
FOR EACH STATEMENT EXECUTE FUNCTION orders.queue_deliveries();
