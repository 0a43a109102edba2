-- Inserts an order with its key, lines, attempt, command and event, or nothing of it if the key is there already.
-- `keyed` says whether the key was new; `placed` whether the order was (a tombstone of its reference wins).
WITH keyed AS (
    INSERT INTO orders.idempotency (scope, key_hash, fingerprint, reference)
    VALUES (:scope, :key_hash, :fingerprint, :reference)
    ON CONFLICT DO NOTHING RETURNING reference
), placed AS (
    INSERT INTO orders."order" (reference, status, event_id, reservation_id, principal, lane, join_seq, total_minor,
        currency, customer_name, customer_email, customer_phone, expires_at, grace_s, version, due_at)
    SELECT reference, 'pending', :event_id, :reservation_id, :principal, :lane, :join_seq, :total_minor,
        :currency, :customer_name, :customer_email, :customer_phone,
        to_timestamp(CAST(:expires_at_ms AS bigint) / 1000.0), :grace_s,
        (extract(epoch FROM clock_timestamp()) * 1000)::bigint, now()
    FROM keyed
    ON CONFLICT DO NOTHING RETURNING reference
), lines AS (
    INSERT INTO orders.order_line (reference, line_no, section_id, seat_id, quantity, unit_price_minor)
    SELECT p.reference, l.line_no, l.section_id, l.seat_id, l.quantity, l.unit_price_minor
    FROM placed p, unnest(CAST(:section_ids AS text[]), CAST(:seat_ids AS text[]), CAST(:quantities AS integer[]),
        CAST(:unit_prices_minor AS bigint[])) WITH ORDINALITY
        AS l (section_id, seat_id, quantity, unit_price_minor, line_no)
), attempt AS (
    INSERT INTO orders.payment_attempt (reference, n, provider, method, token, return_url, amount_minor, currency,
        provider_key, status)
    SELECT reference, 1, :provider, :method, :token, :return_url, :total_minor, :currency, concat_ws(chr(58), reference, '1'), 'created'
    FROM placed WHERE CAST(:total_minor AS bigint) > 0
), command AS (
    INSERT INTO orders.checkout_command (reference, command_type, payload, status)
    SELECT reference, 'checkout', jsonb_build_object('reservation_id', CAST(:reservation_id AS text)), 'processing'
    FROM placed
), told AS (
    INSERT INTO orders.outbox (event_id, body) SELECT :event_id, CAST(:event AS jsonb) FROM placed
)
SELECT (SELECT count(*) FROM keyed) AS keyed, (SELECT count(*) FROM placed) AS placed
