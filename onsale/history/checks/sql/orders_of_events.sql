-- What each order of these events ended as, and its refunds as orders knows them. $1 events
SELECT o.reference, o.status, o.total_minor, o.charge_ref, coalesce(back.minor, 0) AS refunded_minor
FROM orders."order" o
LEFT JOIN LATERAL (
    SELECT sum(m.amount_minor) AS minor FROM orders.money_entry m
    WHERE m.reference = o.reference AND m.kind = 'refund' AND m.charge_ref = o.charge_ref
) AS back ON true
WHERE o.event_id = ANY($1::text[]) AND o.status <> 'tombstone'
