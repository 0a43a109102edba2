-- One event. Of its orders a fifth is pending (fifty of them are due), two fifths are confirmed, the others are cancelled
-- or refunded. Each has one line with one ticket, one attempt and its journal; a pending one is open, of a process that is
-- alive or of one that is not; a sold one also has a charge and a mail.
CREATE TEMP TABLE sample AS
SELECT i, 'o' || 10000000 + i AS reference, (ARRAY['pending', 'confirmed', 'confirmed', 'cancelled', 'refunded'])[i % 5 + 1] AS status,
       now() - (i + 3600) * interval '1 second' AS at
FROM generate_series(1, {size}) AS i;
INSERT INTO orders."order" (reference, status, event_id, reservation_id, owner_id, key_hash, fingerprint, lane, join_seq, total_minor,
    currency, customer_name, customer_email, created_at, expires_at, confirmed_at, fulfilled_at, charge_ref, lines, extras, attempts, journal)
SELECT reference, status, 'e', 'r' || i, 'e:' || CASE WHEN i % 10 = 1 THEN 'user.' ELSE '' END || md5(CAST(i AS text)),
       decode(md5(CAST(i AS text)), 'hex'), '', 0, i, 5000, 'EUR',
       'Name ' || i, 'm' || i || '@x', at, now(), CASE WHEN status IN ('confirmed', 'refunded') THEN at END,
       CASE WHEN status IN ('confirmed', 'refunded') THEN at END,
       CASE WHEN status IN ('confirmed', 'refunded') THEN 'ch' || i END,
       jsonb_build_array(jsonb_strip_nulls(jsonb_build_object('section_id', 'S1', 'seat_id', 'S1-' || i, 'unit_price_minor', 5000,
           'paid_minor', 5000, 'returned', CASE status WHEN 'refunded' THEN 1 END, 'tickets', jsonb_build_array(jsonb_strip_nulls(
               jsonb_build_object('id', 't' || i, 'void_at_ms', CASE status WHEN 'refunded' THEN 1 END)))))),
       '[{{"kind": "fee", "name": "f", "percent": "1", "amount_minor": 100, "included": true}}]',
       jsonb_build_array(jsonb_build_object('provider', 'sandbox', 'method', 'card', 'provider_ref', 'ch' || i, 'status',
           CASE status WHEN 'pending' THEN 'unknown' WHEN 'cancelled' THEN 'failed' ELSE 'succeeded' END)),
       jsonb_build_array(jsonb_build_object('type', 'reserve', 'by', 'fan', 'status', 'completed', 'tries', 1, 'at_ms', 1, 'done_at_ms', 2),
           jsonb_build_object('type', 'checkout', 'by', 'fan', 'status', 'processing', 'tries', 0, 'at_ms', 1))
FROM sample;
INSERT INTO orders.open_order (reference, event_id, join_seq, owner, woken, due_at)
SELECT reference, 'e', i, CASE WHEN i <= 500 THEN 'me' WHEN i <= 1000 THEN 'dead' ELSE 'p' || i % 3 END, i <= 250,
       CASE WHEN i <= 250 THEN now() ELSE now() + interval '1 hour' END
FROM sample WHERE status = 'pending';
INSERT INTO orders.process (owner, free) SELECT 'p' || i, 10 FROM generate_series(0, 2) AS i;
INSERT INTO orders.money_entry (reference, kind, amount_minor, currency, provider, provider_ref, charge_ref, occurred_at,
    created_at)
SELECT reference, 'charge', 5000, 'EUR', 'sandbox', 'ch' || i, 'ch' || i, at, at
FROM sample WHERE status IN ('confirmed', 'refunded')
UNION ALL
SELECT reference, 'refund', 5000, 'EUR', 'sandbox', 're' || i, 'ch' || i, at, at FROM sample WHERE status = 'refunded';
INSERT INTO orders.refund (reference, provider, charge_ref, amount_minor, currency, reason, requested_by, idem_key, status, tickets,
    returned)
SELECT reference, 'sandbox', 'ch' || i, 5000, 'EUR', 'r', 'a', 'k' || i, 'succeeded', '[{{"line_no": 1, "quantity": 1}}]', 'done'
FROM sample WHERE status = 'refunded';
INSERT INTO orders.webhook_inbox (provider, webhook_id, kind, reference, charge_ref, raw, applied_at)
SELECT 'sandbox', 'w' || i, 'charge', reference, 'ch' || i, '', CASE WHEN i > 50 THEN now() END FROM sample;
INSERT INTO orders.event_price (event_id, currency, section_ids, rules) VALUES ('e', 'EUR', '[]', '{{}}');
INSERT INTO orders.promo_code (event_id, code, percent, uses_max, customer_uses_max)
SELECT 'e', 'CODE' || i, 10, 100, 2 FROM generate_series(1, {size} / 50) AS i
UNION ALL SELECT 'e', 'POPULAR', 10, NULL, NULL;
INSERT INTO orders.promo_redemption (reference, event_id, code, customer_key, created_at)
SELECT reference, 'e', CASE WHEN i % 2 = 0 THEN 'POPULAR' ELSE 'CODE' || i % ({size} / 50) + 1 END, 'c' || i, at FROM sample;
INSERT INTO orders.webhook_endpoint (endpoint_id, url, secret, kinds) SELECT 'ep_' || lpad(i::text, 16, '0'), 'u', 's', '{{a}}' FROM generate_series(1, 3) AS i;
INSERT INTO orders.webhook_delivery (endpoint_id, message_id, kind, event_id, reference, body, status, due_at, lease, lease_until)
SELECT 'ep_' || lpad((i % 3 + 1)::text, 16, '0'), 'm' || i, 'k', 'e', reference, 'b', CASE WHEN i <= 50 THEN 'pending' ELSE 'delivered' END,
       CASE WHEN i <= 50 THEN now() END, CASE WHEN i <= 5 THEN 'me' END, CASE WHEN i <= 5 THEN now() END
FROM sample;
INSERT INTO orders.mail (mail_key, kind, address, event_id, reference, sent_at)
SELECT 'm' || i, 'confirmed', 'a@x', 'e', reference, CASE WHEN i > 50 THEN now() END FROM sample;
INSERT INTO orders.event_refund (event_id, status, reason, requested_by, role, return_to_sale, rate_per_s, ended_at)
SELECT 'e', CASE i WHEN 1 THEN 'running' ELSE 'done' END, 'r', 'a', 'admin', true, 100, now() FROM sample;
INSERT INTO orders.audit_log (actor, action, subject) SELECT 'a', 'x', 'order:' || reference FROM sample;
