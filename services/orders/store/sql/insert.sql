-- Inserts orders, each owned by this process, with their events. Nothing of an order is written whose key, reference or
-- reservation exists. Returns those that are new.
WITH drafts AS (
    SELECT * FROM jsonb_to_recordset(CAST(:orders AS jsonb)) AS a(
        reference text, event_id text, reservation_id text, owner_id text, key_hash text, fingerprint text,
        lane integer, join_seq bigint, total_minor bigint, currency text, customer_name text, customer_email text,
        customer_phone text, language text, expires_at_ms bigint, grace_s integer, lines jsonb, extras jsonb,
        attempts jsonb, journal jsonb, event jsonb, traceparent text)
), created AS (
    INSERT INTO orders."order" (reference, event_id, reservation_id, owner_id, key_hash, fingerprint, lane, join_seq,
        total_minor, currency, customer_name, customer_email, customer_phone, language, grace_s, traceparent, extras,
        expires_at, status, version, lines, attempts, journal)
    SELECT a.reference, a.event_id, a.reservation_id, a.owner_id, decode(a.key_hash, 'hex'),
        decode(a.fingerprint, 'hex'), a.lane, a.join_seq, a.total_minor, a.currency, a.customer_name, a.customer_email,
        a.customer_phone, a.language, a.grace_s, a.traceparent, a.extras, to_timestamp(a.expires_at_ms / 1000.0),
        'pending', (extract(epoch FROM clock_timestamp()) * 1000)::bigint, a.lines, a.attempts, a.journal
    FROM drafts a
    ORDER BY a.reference
    ON CONFLICT DO NOTHING RETURNING reference, version, created_at
), opened AS (
    INSERT INTO orders.open_order (reference, event_id, join_seq, owner)
    SELECT a.reference, a.event_id, a.join_seq, :owner FROM drafts a JOIN created c ON c.reference = a.reference
), emitted AS (
    INSERT INTO orders.outbox_batch (events)
    SELECT jsonb_agg(a.event) FROM drafts a JOIN created c ON c.reference = a.reference HAVING count(*) > 0
)
SELECT reference, version, (extract(epoch FROM created_at) * 1000)::bigint AS created_at_ms FROM created
