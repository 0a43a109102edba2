-- A provider's list of succeeded charges (:theirs, whose ids are :refs too, for the planner) against our money ledger: how many
-- were looked at, and the first :listed_max that are `missing` in ours, that ours has in `extra`, that are `different` there, and
-- whose money `moved` otherwise since. Looked at are charges from :start until :stop by either side, and those that both have.
-- Refunds count only if the provider tells its own.
WITH theirs AS (
    SELECT * FROM jsonb_to_recordset(CAST(:theirs AS jsonb)) AS t(
        charge_ref text, reference text, amount_minor bigint, currency text, occurred_at_ms bigint, refunded_minor bigint,
        dispute jsonb)
), ours AS (
    SELECT c.* FROM orders.charge c
    WHERE c.provider = :provider
        AND (c.charge_ref = ANY(CAST(:refs AS text[])) OR (c.occurred_at >= :start AND c.occurred_at < :stop))
), compared AS (
    SELECT charge_ref, o.id IS NULL AS is_missing, t.amount_minor IS NULL AS is_extra,
        jsonb_build_object('charge_ref', charge_ref, 'reference', coalesce(o.reference, t.reference),
            'amount_minor', coalesce(o.amount_minor, t.amount_minor), 'currency', coalesce(o.currency, t.currency)) AS charge,
        (t.amount_minor, t.currency) <> (o.amount_minor, o.currency) AS is_different,
        jsonb_build_object('theirs_minor', t.amount_minor, 'their_currency', t.currency) AS there,
        t.refunded_minor <> o.refunded_minor OR withdrawn.minor <> o.disputed_minor AS has_moved,
        jsonb_build_object('refunded_minor', o.refunded_minor, 'theirs_refunded_minor', coalesce(t.refunded_minor, 0),
            'disputed_minor', o.disputed_minor, 'theirs_disputed_minor', withdrawn.minor) AS moved
    FROM ours o FULL JOIN theirs t USING (charge_ref)
    CROSS JOIN LATERAL (SELECT coalesce((t.dispute ->> 'withdrawn_minor')::bigint, 0) AS minor) AS withdrawn
    WHERE o.id IS NOT NULL OR (to_timestamp(t.occurred_at_ms / 1000.0) >= :start AND to_timestamp(t.occurred_at_ms / 1000.0) < :stop)
), listed AS (
    SELECT f.kind, f.charge, row_number() OVER (PARTITION BY f.kind ORDER BY c.charge_ref) AS n
    FROM compared c CROSS JOIN LATERAL (VALUES
        ('missing', c.is_missing, c.charge), ('extra', c.is_extra, c.charge), ('different', c.is_different, c.charge || c.there),
        ('moved', c.has_moved AND NOT c.is_missing AND NOT c.is_extra, c.charge || c.moved)) AS f(kind, is_found, charge)
    WHERE f.is_found
)
SELECT CAST(:provider AS text) AS provider, (SELECT count(*) FROM compared) AS compared,
    coalesce(jsonb_agg(charge ORDER BY n) FILTER (WHERE kind = 'missing'), '[]') AS missing,
    coalesce(jsonb_agg(charge ORDER BY n) FILTER (WHERE kind = 'extra'), '[]') AS extra,
    coalesce(jsonb_agg(charge ORDER BY n) FILTER (WHERE kind = 'different'), '[]') AS different,
    coalesce(jsonb_agg(charge ORDER BY n) FILTER (WHERE kind = 'moved'), '[]') AS moved
FROM listed WHERE n <= :listed_max
