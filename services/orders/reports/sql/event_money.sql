-- Charges, refunds and what disputes withdrew of an event by currency, by our money ledger.
SELECT m.currency, count(*) FILTER (WHERE m.kind = 'charge') AS charges,
    coalesce(sum(m.amount_minor) FILTER (WHERE m.kind = 'charge'), 0)::bigint AS charged_minor,
    count(*) FILTER (WHERE m.kind = 'refund') AS refunds,
    coalesce(sum(m.amount_minor) FILTER (WHERE m.kind = 'refund'), 0)::bigint AS refunded_minor,
    coalesce(sum(m.amount_minor) FILTER (WHERE m.kind = 'refund' AND starts_with(m.provider_ref, 'outside:')), 0)::bigint
        AS refunded_outside_minor,
    count(*) FILTER (WHERE m.kind = 'dispute') AS disputes,
    coalesce(sum(CASE m.kind WHEN 'dispute' THEN m.amount_minor WHEN 'reinstatement' THEN -m.amount_minor END), 0)::bigint
        AS disputed_minor
FROM orders."order" o JOIN orders.money_entry m USING (reference)
WHERE o.event_id = :event_id
GROUP BY m.currency ORDER BY m.currency
