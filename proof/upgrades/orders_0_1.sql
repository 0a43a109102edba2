-- A night of 0.1.0, as its own tables hold it: orders that wait, are charged, stand in review, were sold, are being refunded,
-- have tickets to return or ended, and tombstones. Each kind {each} times; times are whole milliseconds.
SELECT setval('orders.money_entry_id_seq', 10000), setval('orders.refund_id_seq', 10000);
CREATE TEMP TABLE sample AS
SELECT n, 'O' || lpad(n::text, 11, '0') AS reference, TIMESTAMPTZ '2026-11-20 20:00:00Z' + n * interval '7 ms' AS at,
    (ARRAY['waiting', 'charging', 'redirected', 'review', 'sold', 'refunding', 'returning', 'cancelled', 'tombstone'])[n % 9 + 1] AS kind
FROM generate_series(1, {each} * 9) AS n;
INSERT INTO orders."order" (reference, status, event_id, reservation_id, owner_id, lane, join_seq, total_minor, currency, customer_name,
    customer_email, customer_phone, language, created_at, changed_at, expires_at, extended_at, grace_s, confirmed_at, fulfilled_at,
    ended_at, end_reason, cancel_requested_at, released_at, charge_ref, review_decision, version, wake_count, sync_requested, errors,
    due_at, lease, lease_until, traceparent)
SELECT reference, CASE kind WHEN 'waiting' THEN 'pending' WHEN 'charging' THEN 'pending' WHEN 'redirected' THEN 'pending'
        WHEN 'sold' THEN 'confirmed' WHEN 'refunding' THEN 'confirmed' WHEN 'returning' THEN 'partially_refunded' ELSE kind END,
    'arena', 'R' || n, 'arena:fan-' || n, n % 2, n, 10000, 'EUR', 'Fan ' || n, 'Fan' || n || '@example.org', '+49 ' || n,
    CASE n % 2 WHEN 0 THEN 'de' ELSE 'en' END, at, at, at + interval '10 min', CASE kind WHEN 'redirected' THEN at END, 60,
    CASE WHEN kind IN ('sold', 'refunding', 'returning') THEN at + interval '1 s' END,
    CASE WHEN kind IN ('sold', 'refunding', 'returning') THEN at + interval '1 s' END,
    CASE WHEN kind IN ('sold', 'refunding', 'returning', 'cancelled') THEN at + interval '1 s' END,
    CASE kind WHEN 'review' THEN 'unknown' WHEN 'cancelled' THEN 'fan' END,
    CASE kind WHEN 'cancelled' THEN at END, NULL::timestamptz,
    CASE WHEN kind IN ('sold', 'refunding', 'returning') THEN 'ch' || n END, CASE kind WHEN 'review' THEN 'refund' END, n * 10, n,
    kind = 'charging', CASE kind WHEN 'charging' THEN 3 ELSE 0 END,
    CASE WHEN kind IN ('sold', 'tombstone') THEN NULL ELSE at + interval '1 min' END,
    CASE kind WHEN 'charging' THEN 'a worker' END, CASE kind WHEN 'charging' THEN at END, CASE kind WHEN 'sold' THEN '00-trace' END
FROM sample WHERE kind <> 'tombstone'
UNION ALL
SELECT reference, 'tombstone', NULL, NULL, NULL, 0, 0, NULL, NULL, NULL, NULL, NULL, 'en', at, at, NULL, NULL, 0, NULL, NULL, NULL,
    NULL, NULL, NULL, NULL, NULL, 0, 0, false, 0, NULL::timestamptz, NULL, NULL::timestamptz, NULL
FROM sample WHERE kind = 'tombstone';
DELETE FROM sample WHERE kind = 'tombstone';
INSERT INTO orders.order_line (reference, line_no, section_id, seat_id, quantity, unit_price_minor, returned, paid_minor)
SELECT reference, 1, 'A', 'A-' || n, 1, 4000, CASE WHEN kind IN ('refunding', 'returning') THEN 1 ELSE 0 END, NULL FROM sample
UNION ALL
SELECT reference, 2, 'GA1', NULL, 2, 3000, 0, 6500 FROM sample;
INSERT INTO orders.order_adjustment SELECT reference, 1, 'fee', 'Service', '5', 500, true FROM sample WHERE n % 3 = 0;
INSERT INTO orders.payment_attempt (reference, n, provider, method, token, return_url, amount_minor, currency, provider_key,
    provider_ref, status, checkout_url, reason, errors, capture, created_at, changed_at)
SELECT reference, 1, 'sandbox', 'ok', 'tok_' || n, NULL, 10000, 'EUR', reference || ':1',
    CASE WHEN kind IN ('waiting', 'charging') THEN NULL ELSE 'ch' || n END,
    CASE kind WHEN 'waiting' THEN 'created' WHEN 'charging' THEN 'unknown' WHEN 'redirected' THEN 'failed' WHEN 'review' THEN 'unknown'
        WHEN 'cancelled' THEN 'cancelled' ELSE 'succeeded' END,
    NULL, CASE kind WHEN 'redirected' THEN 'declined' END, CASE kind WHEN 'charging' THEN 2 ELSE 0 END, n % 2 = 0, at, at + interval '3 ms'
FROM sample
UNION ALL
SELECT reference, 2, 'stripe', 'checkout', NULL, 'https://shop/back', 10000, 'EUR', reference || ':2', 'cs' || n, 'requires_action',
    'https://pay/' || n, NULL, 0, true, at + interval '5 ms', at + interval '6 ms'
FROM sample WHERE kind = 'redirected';
INSERT INTO orders.money_entry (reference, kind, amount_minor, currency, provider, provider_ref, charge_ref, occurred_at, created_at)
SELECT reference, 'charge', 10000, 'EUR', 'sandbox', 'ch' || n, 'ch' || n, at, at
FROM sample WHERE kind IN ('sold', 'refunding', 'returning')
UNION ALL
SELECT reference, 'refund', 4000, 'EUR', 'sandbox', 're' || n, 'ch' || n, at, at FROM sample WHERE kind = 'returning';
INSERT INTO orders.ticket (reference, line_no, n, event_id, ticket_id, issued_at, void_at, void_reason)
SELECT reference, l.line_no, l.n, 'arena', 'T' || reference || l.line_no || l.n, at + interval '1 s',
    CASE WHEN kind = 'returning' AND l.line_no = 1 THEN at + interval '2 s' END,
    CASE WHEN kind = 'returning' AND l.line_no = 1 THEN 'rain' END
FROM sample, (VALUES (1, 1), (2, 1), (2, 2)) AS l(line_no, n) WHERE kind IN ('sold', 'refunding', 'returning');
INSERT INTO orders.idempotency (scope, key_hash, fingerprint, reference, created_at)
SELECT 'POST /orders arena:fan-' || n, sha256(('order' || n)::bytea), sha256(('body' || n)::bytea), reference, at FROM sample
UNION ALL
SELECT 'POST /orders/' || reference || '/payments', sha256(('again' || n)::bytea), sha256(('body2' || n)::bytea), reference,
    at + interval '5 ms'
FROM sample WHERE kind = 'redirected'
UNION ALL
SELECT 'POST /admin/orders/' || reference || '/refund', sha256(('refund' || n)::bytea), sha256(('body3' || n)::bytea), reference,
    at + interval '2 s'
FROM sample WHERE kind IN ('refunding', 'returning');
INSERT INTO orders.checkout_command (command_id, reference, command_type, caused_by, payload, status, attempts, created_at,
    processed_at, error_message)
SELECT gen_random_uuid(), reference, 'reserve', 'fan', jsonb_build_object('reservation_id', 'R' || n), 'completed', 1, at, at, NULL FROM sample
UNION ALL
SELECT gen_random_uuid(), reference, 'checkout', 'fan', '{{}}', CASE kind WHEN 'cancelled' THEN 'failed' ELSE 'processing' END, 2,
    at + interval '1 ms', CASE kind WHEN 'cancelled' THEN at + interval '1 s' END, CASE kind WHEN 'cancelled' THEN 'fan' END
FROM sample
UNION ALL
SELECT gen_random_uuid(), reference, 'refund', 'ann', '{{"amount_minor": 4000}}', 'processing', 0, at + interval '2 s', NULL, NULL
FROM sample WHERE kind IN ('refunding', 'returning');
INSERT INTO orders.refund (reference, provider, charge_ref, amount_minor, currency, reason, requested_by, idem_key, status, command_id,
    tickets, return_to_sale, returned, created_at, done_at)
SELECT s.reference, 'sandbox', 'ch' || s.n, 4000, 'EUR', 'rain', 'ann', 'refund:ch' || s.n || ':0',
    CASE s.kind WHEN 'refunding' THEN 'requested' ELSE 'succeeded' END, c.command_id,
    jsonb_build_array(jsonb_build_object('line_no', 1, 'section_id', 'A', 'seat_id', 'A-' || s.n, 'quantity', 1)), true, NULL,
    s.at + interval '2 s', CASE s.kind WHEN 'returning' THEN s.at + interval '3 s' END
FROM sample s JOIN orders.checkout_command c ON c.reference = s.reference AND c.command_type = 'refund';
DROP TABLE sample;
