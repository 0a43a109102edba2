-- Every charge in the money ledger of these events' orders, with what of it was refunded and withdrawn for disputes. $1 events
SELECT c.reference, c.charge_ref, c.amount_minor AS charged_minor, coalesce(back.refunded, 0) AS refunded_minor,
    coalesce(back.withdrawn, 0) AS withdrawn_minor
FROM orders."order" o
JOIN orders.money_entry c ON c.reference = o.reference AND c.kind = 'charge'
LEFT JOIN LATERAL (
    SELECT sum(m.amount_minor) FILTER (WHERE m.kind = 'refund') AS refunded,
        sum(CASE m.kind WHEN 'dispute' THEN m.amount_minor WHEN 'reinstatement' THEN -m.amount_minor END) AS withdrawn
    FROM orders.money_entry m
    WHERE m.reference = c.reference AND m.charge_ref = c.charge_ref AND m.kind <> 'charge'
) AS back ON true
WHERE o.event_id = ANY($1::text[])
