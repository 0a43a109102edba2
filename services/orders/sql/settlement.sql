-- Charges, refunds and what is left of them by day, provider and currency; days are given by their bounds.
SELECT d.day, m.provider, m.currency,
    count(*) FILTER (WHERE m.kind = 'charge') AS charges,
    coalesce(sum(m.amount_minor) FILTER (WHERE m.kind = 'charge'), 0) AS charged_minor,
    count(*) FILTER (WHERE m.kind = 'refund') AS refunds,
    coalesce(sum(m.amount_minor) FILTER (WHERE m.kind = 'refund'), 0) AS refunded_minor
FROM unnest(CAST(:days AS text[]), CAST(:starts AS timestamptz[]), CAST(:ends AS timestamptz[])) AS d(day, start, stop)
JOIN orders.money_entry m ON m.occurred_at >= d.start AND m.occurred_at < d.stop
GROUP BY d.day, m.provider, m.currency
ORDER BY d.day, m.provider, m.currency
