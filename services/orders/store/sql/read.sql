-- Reads orders with their money, one row each; times in ms since the epoch. Tombstones are left out. What was asked of an
-- order that is open stands in `open_order`; one that is not open was asked nothing.
SELECT o.reference, o.status, o.event_id, o.reservation_id, o.owner_id, o.lane, o.join_seq, o.total_minor, o.currency,
    o.customer_name, o.customer_email, o.language, o.grace_s, o.end_reason, o.charge_ref, o.version, o.traceparent,
    o.unmailed_at IS NOT NULL AS unmailed, o.address_changes, o.name_changes,
    o.review_decision, o.dispute, o.cancel_requested_at IS NOT NULL AS cancel_requested, o.extended_at IS NOT NULL AS extended, o.released_at IS NOT NULL AS released,
    coalesce(p.wakes, 0) AS wakes, coalesce(p.sync_requested, false) AS sync_requested, coalesce(p.errors, 0) AS errors,
    coalesce(p.due_at <= clock_timestamp(), false) AS sync_due, p.owner, p.epoch,
    (extract(epoch FROM o.created_at) * 1000)::bigint AS created_at_ms,
    (extract(epoch FROM o.expires_at) * 1000)::bigint AS expires_at_ms,
    (extract(epoch FROM o.confirmed_at) * 1000)::bigint AS confirmed_at_ms,
    (extract(epoch FROM o.fulfilled_at) * 1000)::bigint AS fulfilled_at_ms,
    (extract(epoch FROM o.ended_at) * 1000)::bigint AS ended_at_ms,
    (extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now_ms,
    o.lines, o.extras, o.attempts, o.journal,
    coalesce((SELECT e.price_types FROM orders.event e WHERE e.event_id = o.event_id), '[]') AS price_types,
    coalesce((
        SELECT jsonb_agg(jsonb_build_object('provider', m.provider, 'charge_ref', m.charge_ref,
            'amount_minor', m.amount_minor, 'currency', m.currency,
            'occurred_at_ms', (extract(epoch FROM m.occurred_at) * 1000)::bigint,
            'refunded_minor', back.minor, 'refunds', back.times,
            'disputed_minor', disputed.minor, 'dispute_entries', disputed.times)
            ORDER BY m.id)
        FROM orders.money_entry m
        CROSS JOIN LATERAL (
            SELECT coalesce(sum(r.amount_minor) FILTER (WHERE r.status <> 'refused'), 0) AS minor, count(*) AS times
            FROM orders.refund r
            WHERE r.provider = m.provider AND r.reference = m.reference AND r.charge_ref = m.charge_ref) AS back
        CROSS JOIN LATERAL (
            SELECT coalesce(sum(CASE d.kind WHEN 'dispute' THEN d.amount_minor ELSE -d.amount_minor END), 0) AS minor,
                count(*) AS times
            FROM orders.money_entry d
            WHERE d.reference = m.reference AND d.provider = m.provider AND d.charge_ref = m.charge_ref
                AND d.kind IN ('dispute', 'reinstatement')) AS disputed
        WHERE m.reference = o.reference AND m.kind = 'charge'), '[]') AS charges,
    coalesce((
        SELECT jsonb_agg(jsonb_build_object('id', r.id, 'provider', r.provider, 'charge_ref', r.charge_ref,
            'amount_minor', r.amount_minor, 'currency', r.currency, 'reason', r.reason, 'idem_key', r.idem_key,
            'tickets', r.tickets, 'command_id', r.command_id)
            ORDER BY r.id)
        FROM orders.refund r WHERE r.reference = o.reference AND r.status = 'requested'), '[]') AS refunds,
    coalesce((
        SELECT jsonb_agg(jsonb_build_object('id', r.id, 'reason', r.reason, 'tickets', r.tickets, 'return_to_sale', r.return_to_sale)
            ORDER BY r.id)
        FROM orders.refund r
        WHERE r.reference = o.reference AND r.status = 'succeeded' AND r.tickets <> '[]' AND r.returned IS NULL), '[]')
        AS returns
FROM orders."order" o LEFT JOIN orders.open_order p ON p.reference = o.reference
WHERE o.reference = ANY(CAST(:references AS text[])) AND o.status <> 'tombstone'
