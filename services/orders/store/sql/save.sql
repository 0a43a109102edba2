-- Writes the updates of many orders. An update is written whole if this process still owns the order in the epoch and
-- nothing was asked of it since it was read (`wakes`), and not at all otherwise. One without an owner is written in a
-- transaction that has locked the row of the open order. Of an order's row it has what changes: an empty text clears, and
-- times are replaced by that of this statement. Returns the orders that were written, with their new times.
-- Open orders are locked in key order, like in every statement that locks several, and always before their orders. Their
-- references are passed as an array too: the planner cannot estimate the length of a JSON document and would read all.
-- Only the parts that the updates have are joined to the statement: planning what is not needed costs more than writing.
WITH updates AS (
    SELECT * FROM jsonb_to_recordset(CAST(:orders AS jsonb)) AS a(
        reference text, owner text, epoch integer, wakes bigint, event_count integer, touches boolean, synced boolean,
        releases boolean, due_in_s double precision, errors integer, status text, end_reason text, charge_ref text,
        dispute text, review_decision text, confirmed_at_ms bigint, fulfilled_at_ms bigint, ended_at_ms bigint,
        released boolean, cancel_requested boolean, extended boolean, expires_at_ms bigint, customer_email text,
        customer_name text, name_changes integer,
        lines jsonb, attempts jsonb, journal jsonb)
), held AS (
    SELECT a.* FROM orders.open_order p JOIN updates a ON a.reference = p.reference
    WHERE p.reference = ANY(CAST(:references AS text[]))
        AND (a.owner IS NULL OR p.owner = a.owner AND p.epoch = a.epoch AND p.wakes = a.wakes)
    ORDER BY p.reference FOR UPDATE OF p
), changed AS (
    UPDATE orders."order" o
    SET status = coalesce(a.status, o.status),
        end_reason = nullif(coalesce(a.end_reason, o.end_reason), ''),
        charge_ref = coalesce(a.charge_ref, o.charge_ref),
        dispute = coalesce(a.dispute, o.dispute),
        review_decision = nullif(coalesce(a.review_decision, o.review_decision), ''),
        confirmed_at = CASE WHEN a.confirmed_at_ms > 0 THEN clock_timestamp() ELSE o.confirmed_at END,
        fulfilled_at = CASE WHEN a.fulfilled_at_ms > 0 THEN clock_timestamp() ELSE o.fulfilled_at END,
        ended_at = CASE WHEN a.ended_at_ms > 0 THEN clock_timestamp() ELSE o.ended_at END,
        released_at = CASE WHEN a.released THEN clock_timestamp() ELSE o.released_at END,
        cancel_requested_at = CASE WHEN a.cancel_requested THEN clock_timestamp() ELSE o.cancel_requested_at END,
        extended_at = CASE WHEN a.extended THEN clock_timestamp() ELSE o.extended_at END,
        customer_email = coalesce(a.customer_email, o.customer_email),
        customer_name = coalesce(a.customer_name, o.customer_name),
        name_changes = coalesce(a.name_changes, o.name_changes),
        address_changes = o.address_changes + (a.customer_email IS NOT NULL)::integer,
        unmailed_at = CASE WHEN a.customer_email IS NULL THEN o.unmailed_at END,
        expires_at = coalesce(to_timestamp(a.expires_at_ms / 1000.0), o.expires_at),
        version = CASE
            WHEN a.event_count > 0 THEN greatest(o.version + a.event_count, (extract(epoch FROM clock_timestamp()) * 1000)::bigint)
            ELSE o.version END,
        lines = coalesce(a.lines, o.lines), attempts = coalesce(a.attempts, o.attempts),
        journal = coalesce(a.journal, o.journal)
    FROM held a WHERE o.reference = a.reference AND a.touches
    RETURNING o.reference, o.customer_email, o.version, o.confirmed_at, o.fulfilled_at
), closed AS (
    DELETE FROM orders.open_order p USING held a
    WHERE p.reference = a.reference AND a.releases AND a.due_in_s IS NULL
), kept AS (
    UPDATE orders.open_order p
    SET due_at = CASE WHEN a.releases THEN clock_timestamp() + make_interval(secs => a.due_in_s) ELSE p.due_at END,
        woken = p.woken AND NOT a.releases, errors = coalesce(a.errors, p.errors),
        sync_requested = p.sync_requested AND NOT a.synced
    FROM held a
    WHERE p.reference = a.reference
        AND (a.releases AND a.due_in_s IS NOT NULL OR a.synced AND NOT a.releases AND p.sync_requested)
)
-- part money
, money AS (
    INSERT INTO orders.money_entry (reference, kind, provider, amount_minor, currency, charge_ref, provider_ref,
        occurred_at)
    SELECT m.reference, m.kind, m.provider, m.amount_minor, m.currency, m.charge_ref, m.provider_ref,
        coalesce(m.occurred_at, clock_timestamp())
    FROM jsonb_populate_recordset(NULL::orders.money_entry, CAST(:money AS jsonb)) AS m
    JOIN changed c ON c.reference = m.reference
    ON CONFLICT DO NOTHING
)
-- part refunds_requested
, refunds_requested AS (
    INSERT INTO orders.refund (reference, provider, charge_ref, amount_minor, currency, reason, requested_by, idem_key,
        status, command_id, tickets, return_to_sale, returned, key_hash, fingerprint, done_at)
    SELECT r.reference, r.provider, r.charge_ref, r.amount_minor, r.currency, r.reason, r.requested_by, r.idem_key,
        coalesce(r.status, 'requested'), r.command_id, coalesce(r.tickets, '[]'), coalesce(r.return_to_sale, false),
        r.returned, r.key_hash, r.fingerprint, CASE WHEN r.status = 'succeeded' THEN clock_timestamp() END
    FROM jsonb_populate_recordset(NULL::orders.refund, CAST(:refunds_requested AS jsonb)) AS r
    JOIN changed c ON c.reference = r.reference
)
-- part refunds_done
, refunds_done AS (
    UPDATE orders.refund r
    SET status = coalesce(d.status, r.status), returned = coalesce(d.returned, r.returned),
        amount_minor = coalesce(d.amount_minor, r.amount_minor), idem_key = coalesce(d.idem_key, r.idem_key),
        done_at = CASE WHEN d.status IN ('succeeded', 'refused') THEN clock_timestamp() ELSE r.done_at END
    FROM jsonb_populate_recordset(NULL::orders.refund, CAST(:refunds_done AS jsonb)) AS d
    JOIN changed c ON c.reference = d.reference
    WHERE r.id = d.id
)
-- part events
, emitted AS (
    INSERT INTO orders.outbox_batch (events)
    SELECT jsonb_agg(e.body ORDER BY e.place)
    FROM ROWS FROM (jsonb_to_recordset(CAST(:events AS jsonb)) AS (reference text, body jsonb))
        WITH ORDINALITY AS e(reference, body, place)
    JOIN changed c ON c.reference = e.reference
    HAVING count(*) > 0
)
-- part mails
, mails AS (
    INSERT INTO orders.mail (mail_key, kind, address, event_id, reference, amount_minor, budget)
    SELECT m.mail_key, m.kind, c.customer_email, m.event_id, m.reference, m.amount_minor, m.budget
    FROM jsonb_populate_recordset(NULL::orders.mail, CAST(:mails AS jsonb)) AS m
    JOIN changed c ON c.reference = m.reference
    ON CONFLICT DO NOTHING
)
-- part end
SELECT h.reference, c.version, (extract(epoch FROM c.confirmed_at) * 1000)::bigint AS confirmed_at_ms,
    (extract(epoch FROM c.fulfilled_at) * 1000)::bigint AS fulfilled_at_ms
FROM held h LEFT JOIN changed c ON c.reference = h.reference
