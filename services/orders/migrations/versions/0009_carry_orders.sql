-- Carries the next :count_max orders over, in the order of their references, after :after. Orders that are due, for whatever
-- reason, are open; nobody owns them yet. Returns the last reference.
WITH page AS (
    SELECT * FROM orders_0_1."order" WHERE reference > :after ORDER BY reference LIMIT :count_max
), carried AS (
    INSERT INTO orders."order" (reference, event_id, reservation_id, owner_id, key_hash, fingerprint, lane, join_seq,
        total_minor, currency, customer_name, customer_phone, language, created_at, grace_s, traceparent, extras,
        customer_email, address_changes, unmailed_at, status, expires_at, extended_at, confirmed_at, fulfilled_at,
        ended_at, end_reason, cancel_requested_at, released_at, charge_ref, dispute, review_decision, version, lines,
        attempts, journal)
    SELECT p.reference, p.event_id, CASE WHEN p.status <> 'tombstone' THEN p.reservation_id END, p.owner_id, i.key_hash,
        i.fingerprint, p.lane, p.join_seq, p.total_minor, p.currency, p.customer_name, p.customer_phone, p.language,
        p.created_at, p.grace_s, p.traceparent,
        coalesce((
            SELECT jsonb_agg(jsonb_build_object('kind', e.kind, 'name', e.name, 'percent', e.percent,
                'amount_minor', e.amount_minor, 'included', e.included) ORDER BY e.line_no)
            FROM orders_0_1.order_adjustment e WHERE e.reference = p.reference), '[]'),
        p.customer_email, p.address_changes, p.unmailed_at, p.status, p.expires_at, p.extended_at, p.confirmed_at,
        p.fulfilled_at, p.ended_at, p.end_reason, p.cancel_requested_at, p.released_at, p.charge_ref, p.dispute,
        p.review_decision, p.version,
        coalesce((
            SELECT jsonb_agg(jsonb_strip_nulls(jsonb_build_object('section_id', l.section_id, 'seat_id', l.seat_id,
                'unit_price_minor', l.unit_price_minor,
                'paid_minor', coalesce(l.paid_minor, l.quantity * l.unit_price_minor),
                'returned', nullif(l.returned, 0),
                'tickets', (
                    SELECT jsonb_agg(jsonb_strip_nulls(jsonb_build_object(
                        'id', coalesce(t.ticket_id, orders_0_1.ticket_id(l.reference, l.line_no, g.n)),
                        'void_at_ms', (extract(epoch FROM t.void_at) * 1000)::bigint, 'void_reason', t.void_reason))
                        ORDER BY g.n)
                    FROM generate_series(1, l.quantity) AS g(n)
                    LEFT JOIN orders_0_1.ticket t
                        ON t.reference = l.reference AND t.line_no = l.line_no AND t.n = g.n))) ORDER BY l.line_no)
            FROM orders_0_1.order_line l WHERE l.reference = p.reference), '[]'),
        coalesce((
            SELECT jsonb_agg(jsonb_strip_nulls(jsonb_build_object('provider', a.provider, 'method', a.method,
                'token', a.token, 'return_url', a.return_url, 'provider_ref', a.provider_ref, 'status', a.status,
                'checkout_url', a.checkout_url, 'reason', a.reason, 'errors', nullif(a.errors, 0),
                'capture', CASE WHEN NOT a.capture THEN false END,
                'created_at_ms', (extract(epoch FROM a.created_at) * 1000)::bigint,
                'changed_at_ms', (extract(epoch FROM a.changed_at) * 1000)::bigint,
                'key_hash', encode(k.key_hash, 'hex'), 'fingerprint', encode(k.fingerprint, 'hex'))) ORDER BY a.n)
            FROM orders_0_1.payment_attempt a
            LEFT JOIN orders_0_1.idempotency k ON a.n > 1 AND k.created_at = a.created_at
                AND k.scope = concat('POST /orders/', a.reference, '/payments')
            WHERE a.reference = p.reference), '[]'),
        coalesce((
            SELECT jsonb_agg(jsonb_strip_nulls(jsonb_build_object('type', c.command_type,
                'by', c.caused_by, 'status', c.status, 'tries', c.attempts,
                'at_ms', (extract(epoch FROM c.created_at) * 1000)::bigint,
                'done_at_ms', (extract(epoch FROM c.processed_at) * 1000)::bigint, 'error', c.error_message,
                'payload', nullif(c.payload, '{}'))) ORDER BY c.created_at, c.command_id)
            FROM orders_0_1.checkout_command c WHERE c.reference = p.reference), '[]')
    FROM page p
    LEFT JOIN LATERAL (
        SELECT k.key_hash, k.fingerprint FROM orders_0_1.idempotency k
        WHERE k.scope = concat('POST /orders ', p.owner_id) AND k.reference = p.reference LIMIT 1
    ) AS i ON true
), opened AS (
    INSERT INTO orders.open_order (reference, event_id, join_seq, owner, sync_requested, errors, due_at)
    SELECT p.reference, p.event_id, p.join_seq, '', p.sync_requested, p.errors, p.due_at
    FROM page p WHERE p.due_at IS NOT NULL AND p.status <> 'tombstone'
)
SELECT max(reference) FROM page
