-- Writes the updates of many leased orders. An update is written whole if its order still has the lease and the status
-- that its step read, and not at all otherwise. Returns the orders that were written, with their new times.
-- Rows of the parts are passed as rows of their tables. Orders are locked in key order, like in every statement that locks several. Their references are passed as an array
-- too: the planner cannot estimate the length of a JSON document and would read all orders for a single one.
WITH updates AS (
    SELECT * FROM jsonb_to_recordset(CAST(:orders AS jsonb)) AS a(
        reference text, lease text, lease_s double precision, status text, wake_count bigint, event_count integer,
        synced boolean, releases boolean, due_in_s double precision, routine boolean, errors integer, "to" text, end_reason text,
        charge_ref text, dispute text, clear_decision boolean, confirmed boolean, fulfilled boolean, ended boolean, released boolean)
), leased AS (
    SELECT o.reference FROM orders."order" o JOIN updates a ON a.reference = o.reference
    WHERE o.reference = ANY(CAST(:references AS text[])) AND o.lease = a.lease AND o.status = a.status
    ORDER BY o.reference FOR UPDATE OF o
), changed AS (
    UPDATE orders."order" o
    SET status = coalesce(a."to", o.status),
        end_reason = nullif(coalesce(a.end_reason, o.end_reason), ''),
        charge_ref = coalesce(a.charge_ref, o.charge_ref),
        dispute = coalesce(a.dispute, o.dispute),
        review_decision = CASE WHEN a."to" IS NULL AND a.clear_decision IS NULL THEN o.review_decision END,
        confirmed_at = CASE WHEN a.confirmed THEN clock_timestamp() ELSE o.confirmed_at END,
        fulfilled_at = CASE WHEN a.fulfilled THEN clock_timestamp() ELSE o.fulfilled_at END,
        ended_at = CASE WHEN a.ended THEN clock_timestamp() ELSE o.ended_at END,
        released_at = CASE WHEN a.released THEN clock_timestamp() ELSE o.released_at END,
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
            ELSE clock_timestamp() + make_interval(secs => a.due_in_s) END,
        routine = CASE WHEN a.releases THEN a.routine AND o.wake_count = a.wake_count ELSE o.routine END
    FROM leased JOIN updates a ON a.reference = leased.reference
    WHERE o.reference = leased.reference
    RETURNING o.reference, o.customer_email, o.wake_count = a.wake_count AS is_current, o.version, o.confirmed_at,
        o.fulfilled_at
), attempts AS (
    UPDATE orders.payment_attempt p
    SET status = t.status, provider_ref = t.provider_ref, checkout_url = t.checkout_url, reason = t.reason,
        errors = t.errors, changed_at = clock_timestamp()
    FROM jsonb_populate_recordset(NULL::orders.payment_attempt, CAST(:attempts AS jsonb)) AS t
    JOIN changed c ON c.reference = t.reference
    WHERE p.reference = t.reference AND p.n = t.n
), money AS (
    INSERT INTO orders.money_entry (reference, kind, provider, amount_minor, currency, charge_ref, provider_ref,
        occurred_at)
    SELECT m.reference, m.kind, m.provider, m.amount_minor, m.currency, m.charge_ref, m.provider_ref,
        coalesce(m.occurred_at, clock_timestamp())
    FROM jsonb_populate_recordset(NULL::orders.money_entry, CAST(:money AS jsonb)) AS m
    JOIN changed c ON c.reference = m.reference
    ON CONFLICT DO NOTHING
), command_rows AS (
    SELECT d.*, CASE WHEN d.status <> 'processing' THEN clock_timestamp() END AS ended_at
    FROM jsonb_populate_recordset(NULL::orders.checkout_command, CAST(:commands AS jsonb)) AS d
    JOIN changed c ON c.reference = d.reference AND (d.command_type <> 'rerun' OR c.is_current)
), commands AS (
    UPDATE orders.checkout_command k
    SET status = t.status, attempts = k.attempts + t.attempts, processed_at = t.ended_at,
        error_message = t.error_message
    FROM command_rows t
    WHERE k.reference = t.reference AND k.processed_at IS NULL
        AND (t.command_id IS NULL OR t.command_id = k.command_id)
        AND (k.command_type = t.command_type OR t.command_type = 'rerun' AND jsonb_exists(k.payload, 'rerun_of'))
), new_commands AS (
    INSERT INTO orders.checkout_command (reference, command_type, caused_by, status, attempts, processed_at,
        error_message)
    SELECT t.reference, t.command_type, t.caused_by, t.status, t.attempts, t.ended_at, t.error_message
    FROM command_rows t
    WHERE t.caused_by IS NOT NULL AND NOT EXISTS (
        SELECT FROM orders.checkout_command k
        WHERE k.reference = t.reference AND k.command_type = t.command_type AND k.processed_at IS NULL)
), refunds_requested AS (
    INSERT INTO orders.refund (reference, provider, charge_ref, amount_minor, currency, reason, requested_by, idem_key,
        status, tickets, done_at)
    SELECT r.reference, r.provider, r.charge_ref, r.amount_minor, r.currency, r.reason, r.requested_by, r.idem_key,
        coalesce(r.status, 'requested'), coalesce(r.tickets, '[]'),
        CASE WHEN r.status = 'succeeded' THEN clock_timestamp() END
    FROM jsonb_populate_recordset(NULL::orders.refund, CAST(:refunds_requested AS jsonb)) AS r
    JOIN changed c ON c.reference = r.reference
    ON CONFLICT DO NOTHING
    RETURNING reference, tickets
), returns_begun AS (
    UPDATE orders.order_line l
    SET returned = least(l.quantity, l.returned + t.quantity)
    FROM refunds_requested r CROSS JOIN LATERAL jsonb_to_recordset(r.tickets) AS t(line_no integer, quantity integer)
    WHERE l.reference = r.reference AND l.line_no = t.line_no
), refunds_done AS (
    UPDATE orders.refund r
    SET status = coalesce(d.status, r.status), returned = coalesce(d.returned, r.returned),
        amount_minor = coalesce(d.amount_minor, r.amount_minor), idem_key = coalesce(d.idem_key, r.idem_key),
        done_at = CASE WHEN d.status IN ('succeeded', 'refused') THEN clock_timestamp() ELSE r.done_at END
    FROM jsonb_populate_recordset(NULL::orders.refund, CAST(:refunds_done AS jsonb)) AS d
    JOIN changed c ON c.reference = d.reference
    WHERE r.id = d.id
    RETURNING r.reference, r.tickets, d.status
), returns_undone AS (
    UPDATE orders.order_line l
    SET returned = l.returned - t.quantity
    FROM refunds_done d CROSS JOIN LATERAL jsonb_to_recordset(d.tickets) AS t(line_no integer, quantity integer)
    WHERE d.status = 'refused' AND l.reference = d.reference AND l.line_no = t.line_no
), emitted AS (
    INSERT INTO orders.outbox_batch (events)
    SELECT jsonb_agg(e.event -> 'body' ORDER BY e.n)
    FROM jsonb_array_elements(CAST(:events AS jsonb)) WITH ORDINALITY AS e(event, n)
    JOIN changed c ON c.reference = e.event ->> 'reference' HAVING count(*) > 0
), tickets AS (
    INSERT INTO orders.ticket (reference, line_no, n, event_id, ticket_id)
    SELECT t.reference, t.line_no, t.n, t.event_id, t.ticket_id
    FROM jsonb_populate_recordset(NULL::orders.ticket, CAST(:tickets AS jsonb)) AS t
    JOIN changed c ON c.reference = t.reference
    ON CONFLICT DO NOTHING
), tickets_voided AS (
    UPDATE orders.ticket t
    SET void_at = clock_timestamp(), void_reason = v.void_reason
    FROM jsonb_populate_recordset(NULL::orders.ticket, CAST(:tickets_voided AS jsonb)) AS v
    JOIN changed c ON c.reference = v.reference
    WHERE t.reference = v.reference AND t.void_at IS NULL AND t.n > v.n
        AND (v.line_no IS NULL OR t.line_no = v.line_no)
), mails AS (
    INSERT INTO orders.mail (mail_key, kind, address, event_id, reference, amount_minor, budget)
    SELECT m.mail_key, m.kind, c.customer_email, m.event_id, m.reference, m.amount_minor, m.budget
    FROM jsonb_populate_recordset(NULL::orders.mail, CAST(:mails AS jsonb)) AS m
    JOIN changed c ON c.reference = m.reference
    ON CONFLICT DO NOTHING
)
SELECT reference, version, (extract(epoch FROM confirmed_at) * 1000)::bigint AS confirmed_at_ms,
    (extract(epoch FROM fulfilled_at) * 1000)::bigint AS fulfilled_at_ms
FROM changed
