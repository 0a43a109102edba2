-- What is set of events: fees and taxes with their currency, and the share of checkouts in the background, which are all
-- unless somebody set one. Each event has a row.
SELECT e.event_id, coalesce(p.rules, '{}') AS rules, coalesce(p.currency, '') AS currency,
    coalesce(s.background_percent, 100) AS background_percent
FROM unnest(CAST(:event_ids AS text[])) AS e(event_id)
LEFT JOIN orders.event_price p ON p.event_id = e.event_id
LEFT JOIN orders.background_share s ON s.event_id = e.event_id
