-- Writes the updates of many leased orders. An update is written whole if its order still has the lease and the status
-- that its step read, and not at all otherwise. Returns the orders that were written, with their new times.
-- Orders are locked in key order, like in every statement that locks several. Their references are passed as an array
-- too: the planner cannot estimate the length of a JSON document and would read all orders for a single one.
WITH updates AS (
    SELECT * FROM jsonb_to_recordset(CAST(:orders AS jsonb)) AS a(
        reference text, lease text, lease_s double precision, status text, wake_count bigint, event_count integer,
        synced boolean, sets jsonb, releases boolean, due_in_s double precision, errors integer)
), leased AS (
    SELECT o.reference FROM orders."order" o JOIN updates a ON a.reference = o.reference
    WHERE o.reference = ANY(CAST(:references AS text[])) AND o.lease = a.lease AND o.status = a.status
    ORDER BY o.reference FOR UPDATE OF o
), changed AS (
    UPDATE orders."order" o
    SET status = coalesce(a.sets ->> 'status', o.status),
        end_reason = CASE WHEN jsonb_exists(a.sets, 'end_reason') THEN a.sets ->> 'end_reason' ELSE o.end_reason END,
        charge_ref = coalesce(a.sets ->> 'charge_ref', o.charge_ref),
        review_decision = CASE WHEN NOT jsonb_exists_any(a.sets, '{status,clear_decision}') THEN o.review_decision END,
        confirmed_at = CASE WHEN jsonb_exists(a.sets, 'confirmed') THEN clock_timestamp() ELSE o.confirmed_at END,
        fulfilled_at = CASE WHEN jsonb_exists(a.sets, 'fulfilled') THEN clock_timestamp() ELSE o.fulfilled_at END,
        ended_at = CASE WHEN jsonb_exists(a.sets, 'ended') THEN clock_timestamp() ELSE o.ended_at END,
        released_at = CASE WHEN jsonb_exists(a.sets, 'released') THEN clock_timestamp() ELSE o.released_at END,
        sync_requested = CASE WHEN a.synced THEN o.wake_count <> a.wake_count ELSE o.sync_requested END,
        version = CASE
            WHEN a.event_count > 0 THEN greatest(o.version + a.event_count, (extract(epoch FROM clock_timestamp()) * 1000)::bigint)
            ELSE o.version END,
        changed_at = CASE WHEN a.event_count > 0 THEN clock_timestamp() ELSE o.changed_at END,
        errors = coalesce(a.errors, o.errors),
        lease = CASE WHEN NOT a.releases THEN o.lease END,
        lease_until = CASE WHEN NOT a.releases THEN clock_timestamp() + make_interval(secs => a.lease_s) END,
        due_at = CASE
            WHEN NOT a.releases THEN o.due_at
            WHEN o.wake_count <> a.wake_count THEN now()
            ELSE clock_timestamp() + make_interval(secs => a.due_in_s) END
    FROM leased JOIN updates a ON a.reference = leased.reference
    WHERE o.reference = leased.reference
    RETURNING o.reference, o.wake_count = a.wake_count AS is_current, o.version, o.confirmed_at, o.fulfilled_at
), attempts AS (
    UPDATE orders.payment_attempt p
    SET status = coalesce(t.sets ->> 'status', p.status),
        provider_ref = CASE WHEN jsonb_exists(t.sets, 'provider_ref') THEN t.sets ->> 'provider_ref' ELSE p.provider_ref END,
        checkout_url = CASE WHEN jsonb_exists(t.sets, 'checkout_url') THEN t.sets ->> 'checkout_url' ELSE p.checkout_url END,
        reason = CASE WHEN jsonb_exists(t.sets, 'reason') THEN t.sets ->> 'reason' ELSE p.reason END,
        errors = coalesce((t.sets ->> 'errors')::integer, p.errors),
        changed_at = clock_timestamp()
    FROM jsonb_to_recordset(CAST(:attempts AS jsonb)) AS t(reference text, n integer, sets jsonb)
    JOIN changed c ON c.reference = t.reference
    WHERE p.reference = t.reference AND p.n = t.n
), money AS (
    INSERT INTO orders.money_entry (reference, kind, provider, amount_minor, currency, charge_ref, provider_ref,
        occurred_at)
    SELECT m.reference, m.kind, m.provider, m.amount_minor, m.currency, m.charge_ref, m.provider_ref,
        coalesce(to_timestamp(m.occurred_at_ms / 1000.0), clock_timestamp())
    FROM jsonb_to_recordset(CAST(:money AS jsonb)) AS m(reference text, kind text, provider text, amount_minor bigint,
        currency text, charge_ref text, provider_ref text, occurred_at_ms bigint)
    JOIN changed c ON c.reference = m.reference
    ON CONFLICT DO NOTHING
), command_rows AS (
    SELECT d.reference, d.kind, d.error, d.caused_by, d.command_id, d.closes, d.attempts
    FROM jsonb_to_recordset(CAST(:commands AS jsonb)) AS d(reference text, kind text, error text, caused_by text,
        command_id uuid, closes boolean, attempts integer)
    JOIN changed c ON c.reference = d.reference AND (d.kind <> 'rerun' OR c.is_current)
), commands AS (
    UPDATE orders.checkout_command k
    SET status = CASE WHEN NOT t.closes THEN k.status WHEN t.error IS NULL THEN 'completed' ELSE 'failed' END,
        attempts = k.attempts + t.attempts,
        processed_at = CASE WHEN t.closes THEN clock_timestamp() END, error_message = t.error
    FROM command_rows t
    WHERE k.reference = t.reference AND k.processed_at IS NULL
        AND (t.command_id IS NULL OR t.command_id = k.command_id)
        AND (k.command_type = t.kind OR t.kind = 'rerun' AND jsonb_exists(k.payload, 'rerun_of'))
), new_commands AS (
    INSERT INTO orders.checkout_command (reference, command_type, caused_by, status, attempts, processed_at,
        error_message)
    SELECT t.reference, t.kind, t.caused_by,
        CASE WHEN NOT t.closes THEN 'processing' WHEN t.error IS NULL THEN 'completed' ELSE 'failed' END,
        t.attempts, CASE WHEN t.closes THEN clock_timestamp() END, t.error
    FROM command_rows t
    WHERE t.caused_by IS NOT NULL AND NOT EXISTS (
        SELECT FROM orders.checkout_command k
        WHERE k.reference = t.reference AND k.command_type = t.kind AND k.processed_at IS NULL)
), refunds_requested AS (
    INSERT INTO orders.refund (reference, provider, charge_ref, amount_minor, currency, reason, requested_by, idem_key,
        status)
    SELECT r.reference, r.provider, r.charge_ref, r.amount_minor, r.currency, r.reason, r.requested_by, r.idem_key,
        'requested'
    FROM jsonb_to_recordset(CAST(:refunds_requested AS jsonb)) AS r(reference text, provider text, charge_ref text,
        amount_minor bigint, currency text, reason text, requested_by text, idem_key text)
    JOIN changed c ON c.reference = r.reference
    ON CONFLICT DO NOTHING
), refunds_done AS (
    UPDATE orders.refund r
    SET status = coalesce(d.status, r.status), returned = coalesce(d.returned, r.returned),
        done_at = CASE WHEN d.status IS NULL THEN r.done_at ELSE clock_timestamp() END
    FROM jsonb_to_recordset(CAST(:refunds_done AS jsonb)) AS d(reference text, id bigint, status text, returned text)
    JOIN changed c ON c.reference = d.reference
    WHERE r.id = d.id
    RETURNING r.reference, r.tickets, d.status
), returns_undone AS (
    UPDATE orders.order_line l
    SET returned = l.returned - t.quantity
    FROM refunds_done d CROSS JOIN LATERAL jsonb_to_recordset(d.tickets) AS t(line_no integer, quantity integer)
    WHERE d.status = 'refused' AND l.reference = d.reference AND l.line_no = t.line_no
), emitted AS (
    INSERT INTO orders.outbox (event_id, body)
    SELECT e.event_id, e.body
    FROM jsonb_to_recordset(CAST(:events AS jsonb)) AS e(reference text, event_id text, body jsonb)
    JOIN changed c ON c.reference = e.reference
), tickets AS (
    INSERT INTO orders.ticket (reference, line_no, n, event_id, ticket_id)
    SELECT t.reference, t.line_no, t.n, t.event_id, t.ticket_id
    FROM jsonb_to_recordset(CAST(:tickets AS jsonb)) AS t(reference text, line_no integer, n integer, event_id text,
        ticket_id text)
    JOIN changed c ON c.reference = t.reference
    ON CONFLICT DO NOTHING
), tickets_voided AS (
    UPDATE orders.ticket t
    SET void_at = clock_timestamp(), void_reason = v.reason
    FROM jsonb_to_recordset(CAST(:tickets_voided AS jsonb)) AS v(reference text, reason text, line_no integer,
        beyond integer)
    JOIN changed c ON c.reference = v.reference
    WHERE t.reference = v.reference AND t.void_at IS NULL AND t.n > v.beyond
        AND (v.line_no IS NULL OR t.line_no = v.line_no)
), mails AS (
    INSERT INTO orders.mail (mail_key, kind, address, event_id, reference, amount_minor)
    SELECT m.mail_key, m.kind, m.address, m.event_id, m.reference, m.amount_minor
    FROM jsonb_to_recordset(CAST(:mails AS jsonb)) AS m(reference text, mail_key text, kind text, address text,
        event_id text, amount_minor bigint)
    JOIN changed c ON c.reference = m.reference
    ON CONFLICT DO NOTHING
)
SELECT reference, version, (extract(epoch FROM confirmed_at) * 1000)::bigint AS confirmed_at_ms,
    (extract(epoch FROM fulfilled_at) * 1000)::bigint AS fulfilled_at_ms
FROM changed
