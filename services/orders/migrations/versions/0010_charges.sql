-- A charge with what of it went back: sums of its refunds, and of what disputes withdrew and did not reinstate. `OFFSET 0` keeps
-- the planner from turning the entries of one order into a scan of all.
CREATE VIEW orders.charge AS
SELECT m.id, m.reference, m.provider, m.provider_ref AS charge_ref, m.amount_minor, m.currency, m.occurred_at,
    back.refunded_minor, back.disputed_minor
FROM orders.money_entry m
CROSS JOIN LATERAL (
    SELECT coalesce(sum(r.amount_minor) FILTER (WHERE r.kind = 'refund'), 0)::bigint AS refunded_minor,
        coalesce(sum(CASE r.kind WHEN 'refund' THEN 0 WHEN 'dispute' THEN r.amount_minor ELSE -r.amount_minor END), 0)::bigint
            AS disputed_minor
    FROM (SELECT * FROM orders.money_entry WHERE reference = m.reference OFFSET 0) AS r
    WHERE r.kind <> 'charge' AND r.provider = m.provider AND r.charge_ref = m.provider_ref) AS back
WHERE m.kind = 'charge';

COMMENT ON COLUMN orders.process.free IS 'Orders more that it can work on; below 0, how many wait.';
