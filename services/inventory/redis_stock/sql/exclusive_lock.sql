-- Waits for every batch of holds under way, and lets no other begin until commit.
SELECT pg_advisory_xact_lock(hashtextextended('inventory stock ' || :event_id, 0))
