-- Stores webhooks, each once however often it was delivered. Returns those that are new.
INSERT INTO orders.webhook_inbox (provider, webhook_id, kind, reference, charge_ref, raw)
SELECT * FROM unnest(CAST(:providers AS text[]), CAST(:webhook_ids AS text[]), CAST(:kinds AS text[]),
    CAST(:references AS text[]), CAST(:charge_refs AS text[]), CAST(:raws AS bytea[]))
    AS w(provider, webhook_id, kind, reference, charge_ref, raw)
ORDER BY provider, webhook_id
ON CONFLICT DO NOTHING
RETURNING webhook_id
