-- Stores webhooks, each once however often it was delivered. One that names only its charge (:abouts) belongs to the
-- order of that charge, and is left out if we have no such charge. Returns those that are new.
INSERT INTO orders.webhook_inbox (provider, webhook_id, kind, reference, charge_ref, raw)
SELECT w.provider, w.webhook_id, w.kind, coalesce(w.reference, m.reference), w.charge_ref, w.raw
FROM unnest(CAST(:providers AS text[]), CAST(:webhook_ids AS text[]), CAST(:kinds AS text[]),
    CAST(:references AS text[]), CAST(:abouts AS text[]), CAST(:charge_refs AS text[]), CAST(:raws AS bytea[]))
    AS w(provider, webhook_id, kind, reference, about, charge_ref, raw)
LEFT JOIN orders.money_entry m
    ON w.reference IS NULL AND m.provider = w.provider AND m.provider_ref = w.about AND m.kind = 'charge'
WHERE w.reference IS NOT NULL OR m.reference IS NOT NULL
ORDER BY w.provider, w.webhook_id
ON CONFLICT DO NOTHING
RETURNING webhook_id
