-- Events in batches behind a cursor. A process of 0.1.0 still inserts into `outbox`: its events are passed on to
-- `outbox_batch` in its own transaction, and its relay finds nothing to publish. `outbox` and `outbox_lease` serve nothing
-- else, and are dropped by a later version.
CREATE SEQUENCE queue.outbox_batch_id_seq;
CREATE TABLE queue.outbox_batch (
    id BIGINT DEFAULT nextval(CASE WHEN pg_current_xact_id() IS NOT NULL THEN 'queue.outbox_batch_id_seq'::regclass END)
        NOT NULL,
    written_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    events JSONB NOT NULL,
    CONSTRAINT pk_outbox_batch PRIMARY KEY (id)
);
ALTER SEQUENCE queue.outbox_batch_id_seq OWNED BY queue.outbox_batch.id;

CREATE TABLE queue.outbox_cursor (
    name TEXT NOT NULL,
    id BIGINT NOT NULL,
    CONSTRAINT pk_outbox_cursor PRIMARY KEY (name)
);

-- The published events of the last day come first, before anybody waits. Those of the last minute count as unpublished, as
-- a relay may be marking some of them just now.
INSERT INTO queue.outbox_batch (written_at, events)
SELECT max(published_at), jsonb_agg(body ORDER BY id)
FROM (
    SELECT id, body, published_at, row_number() OVER (ORDER BY id) / 200 AS part FROM queue.outbox
    WHERE published_at < now() - interval '1 minute'
        AND published_at > (SELECT max(published_at) FROM queue.outbox) - interval '1 day'
) AS published
GROUP BY part ORDER BY part;
INSERT INTO queue.outbox_cursor (name, id) SELECT 'relay', coalesce(max(id), 0) FROM queue.outbox_batch;

LOCK TABLE queue.outbox IN SHARE ROW EXCLUSIVE MODE;
INSERT INTO queue.outbox_batch (events)
SELECT jsonb_agg(body ORDER BY id)
FROM (
    SELECT id, body, row_number() OVER (ORDER BY id) / 200 AS part FROM queue.outbox
    WHERE published_at IS NULL OR published_at >= now() - interval '1 minute'
) AS waiting
GROUP BY part ORDER BY part;
UPDATE queue.outbox SET published_at = clock_timestamp() WHERE published_at IS NULL;

CREATE FUNCTION queue.pass_event_on() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO queue.outbox_batch (events) VALUES (jsonb_build_array(NEW.body));
    RETURN NULL;
END
$$;
CREATE TRIGGER pass_event_on BEFORE INSERT ON queue.outbox FOR EACH ROW EXECUTE FUNCTION queue.pass_event_on();
