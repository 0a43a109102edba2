-- The orders of these charges of a provider that have something to learn: money that our ledger does not have, that moved since,
-- or a dispute. An authorisation that is neither captured nor cancelled by now pays for nothing, or could not be captured.
SELECT DISTINCT t.reference
FROM jsonb_to_recordset(CAST(:charges AS jsonb)) AS t(
    charge_ref text, reference text, status text, refunded_minor bigint, dispute jsonb)
LEFT JOIN LATERAL (
    SELECT c.refunded_minor, c.disputed_minor, (
        SELECT o.dispute FROM orders."order" o WHERE o.reference = c.reference AND o.charge_ref = c.charge_ref) AS dispute
    FROM orders.charge c WHERE c.provider = :provider AND c.charge_ref = t.charge_ref
    OFFSET 0
) AS ours ON true
WHERE CASE WHEN t.status <> 'succeeded' THEN t.status = 'authorised' ELSE ours.refunded_minor IS NULL
    OR t.refunded_minor <> ours.refunded_minor
    OR coalesce((t.dispute ->> 'withdrawn_minor')::bigint, 0) <> ours.disputed_minor
    OR t.dispute ->> 'status' IS DISTINCT FROM ours.dispute END
ORDER BY t.reference
