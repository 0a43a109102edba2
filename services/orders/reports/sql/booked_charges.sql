-- A provider's charges in our money ledger: those it lists (:refs), and those of the time that is compared.
SELECT provider_ref AS charge_ref, reference, amount_minor, currency
FROM orders.money_entry
WHERE kind = 'charge' AND provider = :provider
    AND (provider_ref = ANY(CAST(:refs AS text[])) OR (occurred_at >= :start AND occurred_at < :stop))
