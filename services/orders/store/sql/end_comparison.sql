-- Ends it: up to :until_ms all is compared. Another process may go on from there.
UPDATE orders.provider_comparison
SET compared_until = to_timestamp(:until_ms / 1000.0), taken_until = '-infinity'
WHERE provider = :provider AND after_s = :after_s
