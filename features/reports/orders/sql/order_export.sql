-- An event's orders, a row for each line, after the order that was read last; whole orders only.
WITH event AS (
    SELECT coalesce((SELECT e.price_types FROM orders.event e WHERE e.event_id = :event_id), '[]') AS types
), page AS (
    SELECT o.* FROM orders."order" o
    WHERE o.event_id = :event_id AND o.status <> 'tombstone'
        AND (CAST(:reference AS text) IS NULL OR (o.created_at, o.reference) > (
            SELECT a.created_at, a.reference FROM orders."order" a WHERE a.reference = CAST(:reference AS text)))
    ORDER BY o.created_at, o.reference
    LIMIT :count_max
)
SELECT p.reference, p.status, p.created_at, p.confirmed_at, p.customer_name, p.customer_email, p.customer_phone,
    p.total_minor, p.currency, l.section_id, l.seat_id, l.quantity, l.returned, l.unit_price_minor,
    a.provider, coalesce(p.charge_ref, a.provider_ref) AS charge_ref,
    coalesce(m.charged, 0)::bigint AS charged_minor, coalesce(m.refunded, 0)::bigint AS refunded_minor,
    l.paid_minor,
    x.discounts_minor, x.fees_minor, x.taxes_minor, x.included_taxes_minor,
    coalesce(m.refunded_outside, 0)::bigint AS refunded_outside_minor, coalesce(m.disputed, 0)::bigint AS disputed_minor, p.dispute,
    t.type_id, coalesce((
        SELECT named ->> 'name' FROM event, jsonb_array_elements(event.types) AS named
        WHERE named ->> 'type_id' = t.type_id), t.type_id) AS type_name
FROM page p
LEFT JOIN LATERAL (
    SELECT line_no, line ->> 'section_id' AS section_id, line ->> 'seat_id' AS seat_id,
        jsonb_array_length(line -> 'tickets') AS quantity, coalesce((line ->> 'returned')::integer, 0) AS returned,
        (line ->> 'unit_price_minor')::bigint AS unit_price_minor, (line ->> 'paid_minor')::bigint AS paid_minor,
        line ->> 'type_id' AS type_id
    FROM jsonb_array_elements(p.lines) WITH ORDINALITY AS parts(line, line_no)
) AS l ON true
CROSS JOIN LATERAL (SELECT coalesce(l.type_id, event.types -> 0 ->> 'type_id') AS type_id FROM event) AS t
CROSS JOIN LATERAL (
    SELECT p.attempts -> -1 ->> 'provider' AS provider, p.attempts -> -1 ->> 'provider_ref' AS provider_ref
) AS a
LEFT JOIN LATERAL (
    SELECT sum(e.amount_minor) FILTER (WHERE e.kind = 'charge') AS charged,
        sum(e.amount_minor) FILTER (WHERE e.kind = 'refund') AS refunded,
        sum(e.amount_minor) FILTER (WHERE e.kind = 'refund' AND starts_with(e.provider_ref, 'outside:')) AS refunded_outside,
        sum(CASE e.kind WHEN 'dispute' THEN e.amount_minor WHEN 'reinstatement' THEN -e.amount_minor END) AS disputed
    FROM orders.money_entry e WHERE e.reference = p.reference
) AS m ON true
LEFT JOIN LATERAL (
    SELECT coalesce(sum(e.amount_minor) FILTER (WHERE e.kind = 'discount'), 0)::bigint AS discounts_minor,
        coalesce(sum(e.amount_minor) FILTER (WHERE e.kind = 'fee'), 0)::bigint AS fees_minor,
        coalesce(sum(e.amount_minor) FILTER (WHERE e.kind = 'tax' AND NOT e.included), 0)::bigint AS taxes_minor,
        coalesce(sum(e.amount_minor) FILTER (WHERE e.kind = 'tax' AND e.included), 0)::bigint AS included_taxes_minor
    FROM jsonb_to_recordset(p.extras) AS e(kind text, included boolean, amount_minor bigint)
) AS x ON true
ORDER BY p.created_at, p.reference, l.line_no
