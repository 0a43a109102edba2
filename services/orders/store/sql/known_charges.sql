-- These charges of a provider as our money ledger has them, each with what of it is refunded and withdrawn for disputes, and
-- the dispute that its order knows of.
SELECT m.provider_ref AS charge_ref, back.refunded_minor, back.disputed_minor,
    (SELECT o.dispute FROM orders."order" o WHERE o.reference = m.reference AND o.charge_ref = m.charge_ref) AS dispute
FROM orders.money_entry m
CROSS JOIN LATERAL (
    SELECT coalesce(sum(r.amount_minor) FILTER (WHERE r.kind = 'refund'), 0)::bigint AS refunded_minor,
        coalesce(sum(CASE r.kind WHEN 'refund' THEN 0 WHEN 'dispute' THEN r.amount_minor ELSE -r.amount_minor END), 0)::bigint
            AS disputed_minor
    FROM (SELECT * FROM orders.money_entry WHERE reference = m.reference OFFSET 0) AS r
    WHERE r.kind <> 'charge' AND r.provider = m.provider AND r.charge_ref = m.charge_ref) AS back
WHERE m.kind = 'charge' AND m.provider = :provider AND m.provider_ref = ANY(CAST(:refs AS text[]))
