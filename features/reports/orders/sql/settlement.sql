-- Charges, refunds (and how much of them was made outside), disputes and what is left of all by day of the time zone :tz,
-- provider and currency, and those of all days, whose day is null; with the first and the last id of the entries.
SELECT d.day, m.provider, m.currency,
    count(*) FILTER (WHERE m.kind = 'charge') AS charges,
    coalesce(sum(m.amount_minor) FILTER (WHERE m.kind = 'charge'), 0)::bigint AS charged_minor,
    count(*) FILTER (WHERE m.kind = 'refund') AS refunds,
    coalesce(sum(m.amount_minor) FILTER (WHERE m.kind = 'refund'), 0)::bigint AS refunded_minor,
    coalesce(sum(m.amount_minor) FILTER (WHERE m.kind = 'refund' AND starts_with(m.provider_ref, 'outside:')), 0)::bigint
        AS refunded_outside_minor,
    count(*) FILTER (WHERE m.kind = 'dispute') AS disputes,
    coalesce(sum(m.amount_minor) FILTER (WHERE m.kind = 'dispute'), 0)::bigint AS disputed_minor,
    coalesce(sum(m.amount_minor) FILTER (WHERE m.kind = 'reinstatement'), 0)::bigint AS reinstated_minor,
    sum(CASE WHEN m.kind IN ('charge', 'reinstatement') THEN m.amount_minor ELSE -m.amount_minor END)::bigint AS net_minor,
    min(m.id) AS first_id, max(m.id) AS last_id
FROM orders.money_entry m
CROSS JOIN LATERAL (SELECT to_char(m.occurred_at AT TIME ZONE CAST(:tz AS text), 'YYYY-MM-DD') AS day) AS d
WHERE m.occurred_at >= CAST(:start AS timestamptz) AND m.occurred_at < CAST(:stop AS timestamptz)
GROUP BY GROUPING SETS ((d.day, m.provider, m.currency), (m.provider, m.currency))
ORDER BY d.day, m.provider, m.currency
