-- What is set of events: fees and taxes with their currency, the share of checkouts in the background, which are all
-- unless somebody set one, the price types, and the names that orders bring. Each event has a row.
SELECT e.event_id, coalesce(p.rules, '{}') AS rules, coalesce(p.currency, '') AS currency,
    coalesce(s.background_percent, 100) AS background_percent, coalesce(v.price_types, '[]') AS price_types,
    coalesce(v.names, 'none') AS names
FROM unnest(CAST(:event_ids AS text[])) AS e(event_id)
LEFT JOIN orders.event_price p ON p.event_id = e.event_id
LEFT JOIN orders.background_share s ON s.event_id = e.event_id
LEFT JOIN orders.event v ON v.event_id = e.event_id
