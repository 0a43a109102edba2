-- Inserts orders with their idempotency keys, lines, adjustments, promo redemptions, attempts, commands and events, and
-- nothing of an order whose key exists. An order with a lease is processed by its request, one without by any worker.
-- `keyed` is true if the key was new, `created` if the order was (false if its reference has a tombstone).
WITH drafts AS (
    SELECT * FROM jsonb_to_recordset(CAST(:orders AS jsonb)) AS a(
        scope text, key_hash text, fingerprint text, reference text, event_id text, reservation_id text, owner_id text,
        lane integer, join_seq bigint, total_minor bigint, currency text, customer_name text, customer_email text,
        customer_phone text, language text, expires_at_ms bigint, grace_s integer, lines jsonb, extras jsonb,
        promo_code text, customer_key text, provider text, method text, token text,
        return_url text, capture boolean, event jsonb, lease text, lease_s double precision,
        traceparent text)
), keyed AS (
    INSERT INTO orders.idempotency (scope, key_hash, fingerprint, reference)
    SELECT scope, decode(key_hash, 'hex'), decode(fingerprint, 'hex'), reference FROM drafts ORDER BY scope, key_hash
    ON CONFLICT DO NOTHING RETURNING reference
), created AS (
    INSERT INTO orders."order" (reference, status, event_id, reservation_id, owner_id, lane, join_seq, total_minor,
        currency, customer_name, customer_email, customer_phone, language, expires_at, grace_s, version, due_at,
        lease, lease_until, traceparent)
    SELECT a.reference, 'pending', a.event_id, a.reservation_id, a.owner_id, a.lane, a.join_seq, a.total_minor,
        a.currency, a.customer_name, a.customer_email, a.customer_phone, a.language,
        to_timestamp(a.expires_at_ms / 1000.0), a.grace_s, (extract(epoch FROM clock_timestamp()) * 1000)::bigint, now(), a.lease,
        clock_timestamp() + make_interval(secs => a.lease_s), a.traceparent
    FROM drafts a JOIN keyed k ON k.reference = a.reference
    ORDER BY a.reference
    ON CONFLICT DO NOTHING RETURNING reference
), lines AS (
    INSERT INTO orders.order_line (reference, line_no, section_id, seat_id, quantity, unit_price_minor, paid_minor)
    SELECT a.reference, l.line_no, l.line ->> 'section_id', l.line ->> 'seat_id', (l.line ->> 'quantity')::integer,
        (l.line ->> 'unit_price_minor')::bigint, (l.line ->> 'paid_minor')::bigint
    FROM drafts a JOIN created p ON p.reference = a.reference,
        jsonb_array_elements(a.lines) WITH ORDINALITY AS l(line, line_no)
), extras AS (
    INSERT INTO orders.order_adjustment (reference, line_no, kind, name, percent, amount_minor, included)
    SELECT a.reference, e.line_no, e.extra ->> 'kind', e.extra ->> 'name', e.extra ->> 'percent',
        (e.extra ->> 'amount_minor')::bigint, (e.extra ->> 'included')::boolean
    FROM drafts a JOIN created p ON p.reference = a.reference,
        jsonb_array_elements(a.extras) WITH ORDINALITY AS e(extra, line_no)
), redemptions AS (
    INSERT INTO orders.promo_redemption (reference, event_id, code, customer_key)
    SELECT a.reference, a.event_id, a.promo_code, a.customer_key
    FROM drafts a JOIN created p ON p.reference = a.reference
    WHERE a.promo_code IS NOT NULL
), attempt AS (
    INSERT INTO orders.payment_attempt (reference, n, provider, method, token, return_url, amount_minor, currency,
        provider_key, status, capture)
    SELECT a.reference, 1, a.provider, a.method, a.token, a.return_url, a.total_minor, a.currency,
        concat_ws(chr(58), a.reference, '1'), 'created', a.capture
    FROM drafts a JOIN created p ON p.reference = a.reference
    WHERE a.total_minor > 0
), command AS (
    INSERT INTO orders.checkout_command (reference, command_type, caused_by, payload, status, attempts, processed_at)
    SELECT a.reference, c.kind, 'fan', jsonb_build_object('reservation_id', a.reservation_id), c.status, c.attempts,
        CASE WHEN c.status = 'completed' THEN clock_timestamp() END
    FROM drafts a JOIN created p ON p.reference = a.reference
    CROSS JOIN (VALUES ('reserve', 'completed', 1), ('checkout', 'processing', 0)) AS c(kind, status, attempts)
), emitted AS (
    INSERT INTO orders.outbox_batch (events)
    SELECT jsonb_agg(a.event) FROM drafts a JOIN created p ON p.reference = a.reference HAVING count(*) > 0
)
SELECT a.reference, k.reference IS NOT NULL AS keyed, p.reference IS NOT NULL AS created
FROM drafts a LEFT JOIN keyed k ON k.reference = a.reference LEFT JOIN created p ON p.reference = a.reference
