-- Stores webhooks, each once however often it was delivered. One that names only its charge (:abouts) belongs to the
-- order of that charge, and is left out if we have no such charge. One about a charge whose money is entered already is
-- applied with it. Returns those that are new and still to be applied.
INSERT INTO orders.webhook_inbox (provider, webhook_id, kind, reference, charge_ref, raw, applied_at)
SELECT w.provider, w.webhook_id, w.kind, coalesce(w.reference, m.reference), w.charge_ref, w.raw,
    CASE WHEN EXISTS (
        SELECT FROM orders.money_entry k
        WHERE k.provider = w.provider AND k.provider_ref = w.charge_ref AND k.kind = 'charge'
            AND k.reference = w.reference) THEN now() END
FROM unnest(CAST(:providers AS text[]), CAST(:webhook_ids AS text[]), CAST(:kinds AS text[]),
    CAST(:references AS text[]), CAST(:abouts AS text[]), CAST(:charge_refs AS text[]), CAST(:raws AS bytea[]))
    AS w(provider, webhook_id, kind, reference, about, charge_ref, raw)
LEFT JOIN orders.money_entry m
    ON w.reference IS NULL AND m.provider = w.provider AND m.provider_ref = w.about AND m.kind = 'charge'
WHERE w.reference IS NOT NULL OR m.reference IS NOT NULL
ORDER BY w.provider, w.webhook_id
ON CONFLICT DO NOTHING
RETURNING applied_at IS NULL AS is_due
