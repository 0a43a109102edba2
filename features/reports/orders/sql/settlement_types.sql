-- What the entries :first_id to :last_id of our money ledger moved from :start until :stop, and for which tickets. Entries that
-- are equal in this are one row, and `times` says how many they are. `tickets` are [type_id, paid_minor, quantity, before, moved]
-- each: of so many tickets of a price type, which cost so much together, these that follow the ones `before`. Whole lines of a
-- type are one. A charge that pays for a sale is for all tickets of its order, a refund for those that its request names, and
-- every other entry for none (null).
-- An order's refunds are sent one by one in the order of their requests, so the n-th refund of a charge in the ledger is its n-th
-- request that succeeded. Those made at the provider itself are entered together with their request, and counted apart.
SELECT e.event_id, e.currency, e.kind, e.amount_minor, of_entry.tickets, count(*) AS times
FROM (
    SELECT m.id, m.reference, m.provider, m.charge_ref, m.kind, m.amount_minor, m.currency, o.event_id, o.lines,
        starts_with(m.provider_ref, 'outside:') AS is_outside,
        m.kind = 'charge' AND o.confirmed_at IS NOT NULL AND m.charge_ref = o.charge_ref
            AND m.amount_minor = o.total_minor AND m.currency = o.currency AS pays_for_sale
    FROM orders.money_entry m
    LEFT JOIN LATERAL (SELECT * FROM orders."order" WHERE reference = m.reference OFFSET 0) AS o ON true
    WHERE m.id BETWEEN :first_id AND :last_id
        AND m.occurred_at >= CAST(:start AS timestamptz) AND m.occurred_at < CAST(:stop AS timestamptz)
) AS e
LEFT JOIN LATERAL (
    SELECT r.id, r.amount_minor, r.created_at FROM orders.refund r
    WHERE e.kind = 'refund' AND r.reference = e.reference AND r.provider = e.provider AND r.charge_ref = e.charge_ref
        AND r.status = 'succeeded' AND r.amount_minor > 0 AND starts_with(r.idem_key, 'outside:') = e.is_outside
    ORDER BY r.id LIMIT 1 OFFSET (
        SELECT count(*) FROM orders.money_entry b
        WHERE b.reference = e.reference AND b.provider = e.provider AND b.charge_ref = e.charge_ref AND b.kind = 'refund'
            AND starts_with(b.provider_ref, 'outside:') = e.is_outside AND b.id < e.id)
) AS request ON request.amount_minor = e.amount_minor
CROSS JOIN LATERAL (
    SELECT jsonb_agg(part.numbers ORDER BY part.numbers) AS tickets
    FROM (
        SELECT jsonb_build_array(t.type_id, sum(t.paid_minor), sum(t.quantity), t.before, sum(t.moved)) AS numbers
        FROM (
            SELECT n.line_no, n.before, coalesce(n.moved, q.quantity) AS moved, q.quantity,
                coalesce(n.line ->> 'type_id', '') AS type_id, (n.line ->> 'paid_minor')::bigint AS paid_minor
            FROM (
                SELECT 0 AS line_no, 0 AS before, NULL AS moved, line
                FROM jsonb_array_elements(e.lines) AS line WHERE e.pays_for_sale
                UNION ALL
                SELECT t.line_no, coalesce(sum(t.quantity) FILTER (WHERE r.id < request.id), 0),
                    sum(t.quantity) FILTER (WHERE r.id = request.id), e.lines -> (t.line_no - 1)
                FROM orders.refund r CROSS JOIN LATERAL jsonb_to_recordset(r.tickets) AS t(line_no integer, quantity integer)
                WHERE r.reference = e.reference AND r.id <= request.id
                    AND NOT (r.status = 'refused' AND r.done_at < request.created_at)
                GROUP BY t.line_no HAVING bool_or(r.id = request.id)
            ) AS n CROSS JOIN LATERAL (SELECT jsonb_array_length(n.line -> 'tickets') AS quantity) AS q
        ) AS t
        GROUP BY t.type_id, t.before, CASE WHEN t.moved < t.quantity THEN t.line_no END
    ) AS part
) AS of_entry
GROUP BY e.event_id, e.currency, e.kind, e.amount_minor, of_entry.tickets
