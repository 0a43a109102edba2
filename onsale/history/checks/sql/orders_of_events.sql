-- What each order of these events ended as, and its refunds and disputes as orders knows them. $1 events
SELECT o.reference, o.status, o.total_minor, o.charge_ref, coalesce(back.minor, 0) AS refunded_minor,
    coalesce(back.disputed, 0) AS disputed_minor
FROM orders."order" o
LEFT JOIN LATERAL (
    SELECT sum(m.amount_minor) FILTER (WHERE m.kind = 'refund') AS minor,
        sum(CASE m.kind WHEN 'dispute' THEN m.amount_minor WHEN 'reinstatement' THEN -m.amount_minor END) AS disputed
    FROM orders.money_entry m
    WHERE m.reference = o.reference AND m.charge_ref = o.charge_ref
) AS back ON true
WHERE o.event_id = ANY($1::text[]) AND o.status <> 'tombstone'
